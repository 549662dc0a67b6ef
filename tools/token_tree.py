"""A world small enough to write down: every response of a token tree, and the exact posterior over them.

A response is up to `max_tokens` tokens out of a few letters, closed by an end token or cut at the limit. A policy is a
table of log-probabilities, of each token (the letters, and last the end) at each node (what has been said so far). The
token goes first: a softmax over a last axis this short is slow. Shapes: P prompts, W = letters + 1 tokens, M nodes,
Y responses, T = max_tokens, and G any number of policies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TokenTree:
    """Which responses there are, the same for every prompt."""

    following: Tensor
    """`[M, W]` int64, the node that a token leads to, or −1 − the response whose last token it is"""
    tokens: Tensor
    """`[Y, T]` int64; 0 beyond a response's end"""
    nodes: Tensor
    """`[Y, T]` int64, where it takes them; 0 beyond its end"""
    places: Tensor
    """`[Y, T]` int64, where they are in a table `[W · M]`"""
    mask: Tensor
    """`[Y, T]` bool, true at tokens of the response"""

    @classmethod
    def of(cls, letters: int, max_tokens: int) -> TokenTree:
        """All responses of at least one token (the end alone is one) and at most `max_tokens`."""
        paths: list[list[tuple[int, int]]] = [[]]  # to each node: (token, node) from the root
        responses: list[list[tuple[int, int]]] = []
        following = []
        for node, path in enumerate(paths):  # grows as it is walked: breadth first
            children = []
            for token in range(letters + 1):
                last = token == letters or len(path) + 1 == max_tokens
                children.append(-1 - len(responses) if last else len(paths))
                (responses if last else paths).append([*path, (token, node)])
            following.append(children)
        tokens, nodes = torch.tensor([path + [(0, 0)] * (max_tokens - len(path)) for path in responses]).unbind(dim=-1)
        lengths = torch.tensor([len(path) for path in responses])
        return cls(
            following=torch.tensor(following),
            tokens=tokens,
            nodes=nodes,
            places=tokens * len(paths) + nodes,
            mask=torch.arange(max_tokens) < lengths[:, None],
        )

    @property
    def size(self) -> int:
        """Y"""
        return len(self.mask)

    def token_logprobs(self, table: Tensor, responses: Tensor) -> Tensor:
        """`[G, N, T]` of `responses [G, N]` under the policies `table [G, W, M]`, differentiable in `table`; any finite
        number beyond a response's end."""
        places = self.places.index_select(0, responses.flatten()).view(*responses.shape, -1)
        return table.flatten(1).gather(1, places.flatten(1)).view(places.shape)

    def response_logprobs(self, table: Tensor) -> Tensor:
        """log π of every response, `[…, Y]`, under the policies `table […, W, M]`."""
        return torch.where(self.mask, table.flatten(-2)[..., self.places], 0.0).sum(dim=-1)

    def sample(self, table: Tensor, uniforms: Tensor) -> Tensor:
        """Responses `[G, N]` drawn token by token from the policies `table [G, W, M]`, by one number of
        `uniforms [G, N, T]` in [0, 1) for each token."""
        policies, tokens, nodes = table.shape
        bounds = table.exp().cumsum(dim=1).transpose(1, 2).reshape(-1, tokens)
        first = (torch.arange(policies) * nodes)[:, None]
        place = torch.zeros(uniforms.shape[:2], dtype=torch.int64)  # a node, or a response as in `following`
        for uniform in uniforms.unbind(dim=-1):
            node = place.clamp(min=0)
            below = bounds.index_select(0, (first + node).flatten()).view(*place.shape, tokens)
            drawn = uniform * below[..., -1]  # the sum is not quite 1
            token = (drawn[..., None] >= below[..., :-1]).sum(dim=-1)
            reached = self.following.flatten().index_select(0, (node * tokens + token).flatten()).view(place.shape)
            place = torch.where(place < 0, place, reached)
        return -1 - place

    def policy(self, weights: Tensor) -> Tensor:
        """The policy `[W, M]` that gives each response its share of `weights [Y]`, all above 0: at each node a token
        has the share of the responses that it leads to."""
        below = weights.new_zeros(self.following.numel())
        below.index_add_(0, self.places[self.mask], weights[:, None].expand_as(self.mask)[self.mask])
        table = below.view(self.following.T.shape)
        return (table / table.sum(dim=0)).log()


@dataclass(frozen=True, slots=True, eq=False)
class World:
    """Prompts with a reference policy and a reward for each response, all in float64."""

    tree: TokenTree
    reference: Tensor
    """`[P, W, M]`, log π_ref"""
    rewards: Tensor
    """`[P, Y]`"""
    modes: Tensor
    """`[P, Y]` bool, the responses with reward 1"""
    beta: float

    @property
    def log_posterior(self) -> Tensor:
        """log p*(y|x) = log π_ref + r/β − log Z(x), `[P, Y]`."""
        return torch.log_softmax(self._log_target(), dim=-1)

    @property
    def optimum(self) -> float:
        """The most that E[r] − β KL(π ‖ π_ref) can be on average over the prompts: β log Z."""
        return self.beta * self._log_target().logsumexp(dim=-1).mean().item()

    def _log_target(self) -> Tensor:
        return self.tree.response_logprobs(self.reference) + self.rewards / self.beta

    def measure(self, table: Tensor) -> dict[str, Tensor]:
        """Exact figures of the policies `table [G, P, W, M]`, each `[G]`, means over the prompts:

        `tv`, total variation to the posterior; `reward`; `kl` to π_ref in nats a response; `j`, the reward less β times
        that; `modes`, how many have at least half of the probability that the posterior gives them."""
        logprobs = self.tree.response_logprobs(table.double())
        share, posterior = logprobs.exp(), self.log_posterior.exp()
        reward = (share * self.rewards).sum(dim=-1)
        kl = (share * (logprobs - self.tree.response_logprobs(self.reference))).sum(dim=-1)
        found = self.modes & (share >= posterior / 2)
        figures = {
            "tv": (share - posterior).abs().sum(dim=-1) / 2,
            "reward": reward,
            "kl": kl,
            "j": reward - self.beta * kl,
            "modes": found.sum(dim=-1).double(),
        }
        return {name: values.mean(dim=-1) for name, values in figures.items()}


def make_world(
    seed: int = 0,
    prompts: int = 4,
    letters: int = 5,
    max_tokens: int = 4,
    modes: int = 8,
    background: float = 0.3,
    spread: float = 0.5,
    beta: float = 0.15,
) -> World:
    """Reward 1 at `modes` responses a prompt, and evenly spread up to `background` elsewhere. The reference policy has
    normal logits of standard deviation `spread`, less 1 for the end: it rarely ends early."""
    draw = torch.Generator().manual_seed(seed)
    tree = TokenTree.of(letters, max_tokens)
    logits = spread * torch.randn(prompts, *tree.following.T.shape, generator=draw, dtype=torch.float64)
    logits[:, -1] -= 1.0
    rewards = background * torch.rand(prompts, tree.size, generator=draw, dtype=torch.float64)
    is_mode = torch.stack([_separated(tree, modes, draw) for _ in range(prompts)])
    return World(
        tree=tree,
        reference=logits.log_softmax(dim=1),
        rewards=rewards.masked_fill(is_mode, 1.0),
        modes=is_mode,
        beta=beta,
    )


def _separated(tree: TokenTree, number: int, draw: torch.Generator) -> Tensor:
    """`[Y]` bool, true at responses of three tokens and more, no two of which have the first two tokens in common; the
    first tokens are as varied as can be, and any length as likely as any other."""
    lengths = tree.mask.sum(dim=-1)
    starts: set[tuple[int, int]] = set()
    chosen = torch.zeros(tree.size, dtype=torch.bool)
    letters = tree.following.shape[1] - 1
    weights = (lengths >= 3) / lengths.bincount()[lengths].float()
    while len(starts) < number:
        response = int(torch.multinomial(weights, 1, generator=draw))
        start = tuple(tree.tokens[response, :2].tolist())
        most = math.ceil((len(starts) + 1) / letters)
        if start not in starts and sum(start[0] == other[0] for other in starts) < most:
            starts.add(start)
            chosen[response] = True
    return chosen
