"""`python -m tba_hpc` is the `tba-hpc` command."""

from tba_hpc.cli import main

if __name__ == "__main__":
    main()
