"""A recorder that does on any device what a CUDA graph does."""

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pilotfish.models.graphs.recorder import Work


class OperationRecorder:
    """Writes down the tensor operations of the work and repeats them over the same tensors, as a CUDA graph does.

    What the host decided while recording is decided for good, and what it would decide later has no effect.
    """

    def __init__(self) -> None:
        self.num_recorded = 0

    def record(self, work: Work) -> Work:
        self.num_recorded += 1
        work()  # warm-up
        operations: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

        class Log(TorchDispatchMode):  # type: ignore[no-untyped-call]
            def __torch_dispatch__(
                self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
            ) -> Any:
                result = func(*args, **(kwargs or {}))
                operations.append((func, args, kwargs or {}, result))
                return result

        with Log():  # type: ignore[no-untyped-call]
            work()

        def replay() -> None:
            for func, args, kwargs, result in operations:
                again = func(*args, **kwargs)
                for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)

        return replay
