"""Clients that ask again as soon as they are answered."""

from collections.abc import Callable, Sequence

from orchestrator.control.controller import Controller
from tests.support.simulated_stack.controller_sequence import ControllerSequence
from tests.support.simulated_stack.controller_stack import ControllerStack

_PAUSE_S = 0.001
"""How soon a client that was answered asks again."""


class Client:
    """Sends one request after the other, with answers of these lengths in turn."""

    def __init__(
        self,
        stack: ControllerStack,
        controller: Callable[[], Controller],
        answer_tokens: Sequence[int],
        number: int = 0,
        num_clients: int = 1,
    ) -> None:
        """number: of num_clients. The luck of its requests depends on the two alone."""
        self._stack, self._controller, self._answer_tokens = stack, controller, answer_tokens
        self._number, self._num_clients = number, num_clients
        self._num_asked = 0
        self._ask()

    def _ask(self) -> None:
        num_tokens = self._answer_tokens[(self._number + self._num_asked) % len(self._answer_tokens)]
        luck = self._number + self._num_clients * self._num_asked
        self._num_asked += 1
        ControllerSequence(self._stack, self._controller(), num_tokens, luck, on_answered=self._pause)

    def _pause(self) -> None:
        self._stack.world.after(_PAUSE_S, self._ask)


def closed_loop_tokens_per_s(
    stack: ControllerStack,
    controllers: Sequence[Callable[[], Controller]],
    answer_tokens: Sequence[int],
    *,
    warm_up_s: float,
    duration_s: float,
) -> float:
    """Of all clients, after the warm-up. controllers: one for each client, of its requests."""
    for number, controller in enumerate(controllers):
        Client(stack, controller, answer_tokens, number, len(controllers))
    begin_s = stack.world.now_s + warm_up_s
    stack.world.run(begin_s)
    before = stack.num_tokens
    stack.world.run(begin_s + duration_s)
    return (stack.num_tokens - before) / duration_s
