"""How ranks come to life."""
