"""An optimiser that does all it has to, and ways to get each thing wrong."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from tests.conformance.contract import OptimizerCase


class Sound(Optimizer):
    """Adam with decoupled decay, written plainly; the faulty ones change a part each."""

    def __init__(self, params: Any, lr: float = 0.01, foreach: bool = False) -> None:
        self.check(lr)
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "decay": 0.1, "foreach": foreach})

    def check(self, lr: float) -> None:
        if not lr >= 0:
            raise ValueError(f"lr must be at least 0, got {lr}")

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = self.call(closure) if closure is not None else None
        for group in self.param_groups:
            for param in group["params"]:
                gradient = self.gradient(param)
                if gradient is not None:
                    self.update(param, gradient, self.state[param], group, self.rate(group))
        return loss

    def call(self, closure: Any) -> Any:
        with torch.enable_grad():
            return closure()

    def gradient(self, param: Tensor) -> Tensor | None:
        if param.grad is not None and param.grad.is_sparse:
            raise ValueError("gradients must be dense, got a sparse one")
        if param.is_complex():
            raise TypeError("params must be real, got a complex one")
        return param.grad

    def rate(self, group: dict[str, Any]) -> float:
        return float(group["lr"])

    def decay(self, group: dict[str, Any]) -> float:
        return float(group["decay"])

    def count(self, state: dict[str, Any]) -> int:
        state["step"] = state.get("step", 0) + 1
        return int(state["step"])

    def direction(self, m: Tensor, v: Tensor) -> Tensor:
        return m / (v.sqrt() + 1e-8)

    def update(self, param: Tensor, gradient: Tensor, state: dict[str, Any], group: Any, lr: float) -> None:
        if "m" not in state:
            state["m"], state["v"] = torch.zeros_like(param), torch.zeros_like(param)
        t = self.count(state)
        beta1, beta2 = group["betas"]
        state["m"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["v"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        param.mul_(1 - lr * self.decay(group))
        param.sub_(lr * self.direction(state["m"] / (1 - beta1**t), state["v"] / (1 - beta2**t)))


class KeepsObject(Sound):
    def update(self, param: Tensor, gradient: Tensor, state: dict[str, Any], group: Any, lr: float) -> None:
        super().update(param, gradient, state, group, lr)
        state["note"] = {1, 2}


class LoadsHalf(Sound):
    def load_state_dict(self, state_dict: Any) -> None:
        super().load_state_dict(state_dict)
        for state in self.state.values():
            state["v"] = torch.zeros_like(state["v"])


class CountsOutside(Sound):
    calls = 0

    def step(self, closure: Any = None) -> Any:
        self.calls += 1
        return super().step(closure)

    def count(self, state: dict[str, Any]) -> int:
        return self.calls


class WideMoments(Sound):
    """Keeps float32 moments, which torch casts to bfloat16 when it loads them."""

    def update(self, param: Tensor, gradient: Tensor, state: dict[str, Any], group: Any, lr: float) -> None:
        if "m" not in state:
            wide = torch.promote_types(param.dtype, torch.float32)
            state["m"], state["v"] = (torch.zeros_like(param, dtype=wide) for _ in range(2))
        super().update(param, gradient, state, group, lr)


class OneRate(Sound):
    def rate(self, group: dict[str, Any]) -> float:
        return float(self.defaults["lr"])


class FirstGroups(Sound):
    """Looks at its groups once."""

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, lr)
        self.first = {id(param) for group in self.param_groups for param in group["params"]}

    def gradient(self, param: Tensor) -> Tensor | None:
        return super().gradient(param) if id(param) in self.first else None


class Coupled(Sound):
    """Takes one norm over all groups."""

    def rate(self, group: dict[str, Any]) -> float:
        grads = [p.grad for g in self.param_groups for p in g["params"] if p.grad is not None]
        return float(group["lr"]) / float(torch.cat([g.flatten() for g in grads]).norm())


class NoLoss(Sound):
    def step(self, closure: Any = None) -> Any:
        super().step(closure)


class NoGradMode(Sound):
    def call(self, closure: Any) -> Any:
        return closure()


class TwoCalls(Sound):
    def step(self, closure: Any = None) -> Any:
        if closure is not None:
            super().step(closure)
        return super().step(closure)


class EpsilonInside(Sound):
    def direction(self, m: Tensor, v: Tensor) -> Tensor:
        return m / (v + 1e-8).sqrt()


class NoDecayTogether(Sound):
    def decay(self, group: dict[str, Any]) -> float:
        return 0.0 if group["foreach"] else super().decay(group)


class TakesAll(Sound):
    def gradient(self, param: Tensor) -> Tensor | None:
        return None if param.grad is None else param.grad.to_dense()


class Wordless(Sound):
    def gradient(self, param: Tensor) -> Tensor | None:
        if param.grad is not None and (param.grad.is_sparse or param.is_complex()):
            raise RuntimeError("cannot step")
        return param.grad


class Late(Sound):
    def update(self, param: Tensor, gradient: Tensor, state: dict[str, Any], group: Any, lr: float) -> None:
        if gradient.is_sparse:
            param.mul_(0.5)
            raise ValueError("gradients must be dense")
        super().update(param, gradient, state, group, lr)

    def gradient(self, param: Tensor) -> Tensor | None:
        return param.grad


class RealOnly(Sound):
    def gradient(self, param: Tensor) -> Tensor | None:
        return (
            param.grad.real + 0 * param.grad if param.is_complex() and param.grad is not None else param.grad
        )


class FirstRate(Sound):
    """Remembers the rate of the first step."""

    def rate(self, group: dict[str, Any]) -> float:
        return float(group.setdefault("remembered", group["lr"]))


class OwnSchedule(Sound):
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["lr"] *= 0.5
        return super().step(closure)


class OwnScaling(Sound):
    """Says that it takes scaled gradients, and does not."""

    _step_supports_amp_scaling = True


class OwnOverflow(OwnScaling):
    """Unscales its gradients, but steps if they overflow."""

    def gradient(self, param: Tensor) -> Tensor | None:
        found = super().gradient(param)
        scale = getattr(self, "grad_scale", None)
        return found if found is None or scale is None else found / scale


class MomentumForAll(Sound):
    def gradient(self, param: Tensor) -> Tensor | None:
        found = super().gradient(param)
        return torch.zeros_like(param) if found is None else found


class Early(Sound):
    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, lr)
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param].update(m=torch.zeros_like(param), v=torch.zeros_like(param))


class ClipsAtStart(Sound):
    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, lr)
        for group in self.param_groups:
            for param in group["params"]:
                param.data.clamp_(-1, 1)


class SharedCount(Sound):
    """Counts in the class, for all its objects."""

    counts: ClassVar[dict[str, int]] = {"t": 0}

    def count(self, state: dict[str, Any]) -> int:
        self.counts["t"] += 1
        return self.counts["t"]


class CopyShares(Sound):
    def __deepcopy__(self, memo: Any) -> CopyShares:
        other = type(self)([memo.get(id(p), p) for g in self.param_groups for p in g["params"]], lr=0.02)
        for (_, ours), param in zip(self.state.items(), other.param_groups[0]["params"], strict=True):
            other.state[param] = ours
        return other


class Careless(Sound):
    def check(self, lr: float) -> None:
        pass


class Nameless(Sound):
    def check(self, lr: float) -> None:
        if not lr >= 0:
            raise ValueError("bad value")


class Noisy(Sound):
    def direction(self, m: Tensor, v: Tensor) -> Tensor:
        return super().direction(m, v) + 1e-3 * torch.randn(m.shape)


class Uphill(Sound):
    def direction(self, m: Tensor, v: Tensor) -> Tensor:
        return -super().direction(m, v)


class VectorsOnly(Sound):
    def gradient(self, param: Tensor) -> Tensor | None:
        return super().gradient(param) if param.ndim == 1 else None


class Fault(NamedTuple):
    """A faulty optimiser, the check that has to see it, and what it has to say."""

    check: str
    says: str
    case: OptimizerCase


def adam(params: Any, lr: float) -> Optimizer:
    return torch.optim.AdamW(params, lr=lr, betas=(0.9, 0.99), weight_decay=0.1)


FAULTS = [
    Fault(
        "state_dict", "cannot be stored without pickle: state_dict.state.0.note", OptimizerCase(KeepsObject)
    ),
    Fault("state_dict", "is not the one that was saved", OptimizerCase(LoadsHalf)),
    Fault("resume", "the steps are others", OptimizerCase(LoadsHalf)),
    Fault("resume", "the steps are others", OptimizerCase(CountsOutside)),
    Fault("resume", "in torch.bfloat16", OptimizerCase(WideMoments)),
    Fault("groups", "a group with the rate 0 has moved", OptimizerCase(OneRate)),
    Fault("groups", "does not move as one that was there", OptimizerCase(FirstGroups)),
    Fault("groups", "as it does in an optimiser of its own", OptimizerCase(Coupled)),
    Fault("closures", "must return the closure's loss", OptimizerCase(NoLoss)),
    Fault("closures", "with gradients enabled", OptimizerCase(NoGradMode)),
    Fault("closures", "are others than without", OptimizerCase(TwoCalls)),
    Fault("torch's own", "off torch's AdamW", OptimizerCase(EpsilonInside, adam, tolerance=1e-12)),
    Fault("torch's own", "off torch's AdamW", OptimizerCase(Sound, torch.optim.AdamW, tolerance=1e-12)),
    Fault("foreach", "apart after 5 steps", OptimizerCase(NoDecayTogether, foreach=True)),
    Fault("odd gradients", "sparse gradients are not refused", OptimizerCase(TakesAll)),
    Fault("odd gradients", "complex gradients are not refused", OptimizerCase(TakesAll)),
    Fault("odd gradients", "does not say so: cannot step", OptimizerCase(Wordless)),
    Fault("odd gradients", "after a parameter has moved", OptimizerCase(Late)),
    Fault(
        "odd gradients", "imaginary part", OptimizerCase(RealOnly, handles=frozenset({"sparse", "complex"}))
    ),
    Fault("odd gradients", "said to be handled, but", OptimizerCase(Sound, handles=frozenset({"sparse"}))),
    Fault("schedules", "it moves still", OptimizerCase(FirstRate)),
    Fault("schedules", "CosineAnnealingLR gives the rates", OptimizerCase(OwnSchedule)),
    Fault("amp", "step 0 is another than without", OptimizerCase(OwnScaling)),
    Fault("amp", "must be left out", OptimizerCase(OwnOverflow)),
    Fault("no gradients", "whose gradient is None moves", OptimizerCase(MomentumForAll)),
    Fault("no gradients", "None gets a state", OptimizerCase(MomentumForAll)),
    Fault("no gradients", "None again goes on moving", OptimizerCase(MomentumForAll)),
    Fault("no gradients", "without any gradient moves", OptimizerCase(MomentumForAll)),
    Fault("no gradients", "holds other parameters up", OptimizerCase(VectorsOnly)),
    Fault("zero steps", "state before the first step", OptimizerCase(Early)),
    Fault("zero steps", "changes the parameters", OptimizerCase(ClipsAtStart)),
    Fault("deep copies", "makes other steps", OptimizerCase(SharedCount)),
    Fault("deep copies", "change the original", OptimizerCase(CopyShares)),
    Fault("invalid settings", "lr = -1.0 is not refused", OptimizerCase(Careless)),
    Fault("invalid settings", "does not name lr: bad value", OptimizerCase(Nameless)),
    Fault("global state", "torch's random state changed", OptimizerCase(Noisy)),
    Fault("quadratic", "a convex quadratic went from", OptimizerCase(Uphill)),
    Fault("network", "the loss of a small network went", OptimizerCase(VectorsOnly)),
    Fault("network", "does not resume with it bit by bit", OptimizerCase(CountsOutside)),
]
