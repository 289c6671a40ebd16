"""Training."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import _arrays, _data, _native
from ._run import Run


class Epoch(NamedTuple):
    """What a callback sees of an epoch. Accuracies are fractions of 1."""

    #: Counted from 1.
    epoch: int
    #: How many there are to be.
    epochs: int
    train_loss: float
    train_top1: float
    train_top5: float
    test_loss: float
    test_top1: float
    test_top5: float
    learning_rate: float
    #: Training examples a second.
    images_per_s: float
    #: The share of the time that went by waiting for data.
    waited: float
    seconds: float
    #: Of the validation part, where the recipe holds one out.
    validation_loss: float | None = None
    validation_top1: float | None = None
    validation_top5: float | None = None


#: Sees each epoch; the run stops, in order, when it returns something true.
Callback = Callable[[Epoch], object]


class _Bar:
    """A bar of tqdm's, in epochs; it is there once there is something to show."""

    def __init__(self, tqdm: Any) -> None:
        self.tqdm = tqdm
        self.bar: Any = None

    def _show(self, done: float, epochs: int, words: str) -> None:
        if self.bar is None:
            self.bar = self.tqdm(total=epochs, unit="epoch", desc="training")
        self.bar.n = done
        self.bar.set_postfix_str(words)

    def step(self, epoch: int, epochs: int, step: int, steps: int, loss: float, top1: float) -> None:
        self._show(round(epoch - 1 + step / steps, 2), epochs, f"train {100 * top1:.1f} %, loss {loss:.3f}")

    def epoch(self, epoch: Epoch) -> None:
        words = f"train {100 * epoch.train_top1:.1f} %, test {100 * epoch.test_top1:.1f} %"
        self._show(epoch.epoch, epoch.epochs, words)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def _bar(progress: bool | None) -> _Bar | None:
    """A bar where there is tqdm and somebody to see it."""
    if progress is False:
        return None
    notebook = "ipykernel" in sys.modules
    if progress is None and not notebook and not (sys.stderr is not None and sys.stderr.isatty()):
        return None
    try:
        if notebook:
            from tqdm.auto import tqdm
        else:
            from tqdm import tqdm
    except ImportError:
        if progress:
            raise
        return None
    return _Bar(tqdm)


def _go(
    recipe: Any,
    settings: Mapping[str, Any] | None,
    epochs: int | None,
    data: Any,
    device: str,
    threads: int | None,
    out: Path | None,
    resume: bool,
    callbacks: Iterable[Callback],
    progress: bool | None,
    start: Run | None = None,
) -> Run:
    native, classes = _data.taken(data)
    heard = list(callbacks)
    for callback in heard:
        if not callable(callback):
            raise TypeError("callbacks: expected functions of an epoch")
    settings = dict(settings) if settings else None
    bar = _bar(progress)

    def on_epoch(figures: dict[str, Any]) -> bool:
        epoch = Epoch(**figures)
        if bar is not None:
            bar.epoch(epoch)
        # All are told, also after one has had enough.
        return any([bool(callback(epoch)) for callback in heard])

    # The recipe's own device, unless one is asked for.
    device_asked = None if device == "auto" else device
    try:
        run, raised = _native.train(
            recipe,
            settings,
            epochs,
            native,
            device_asked,
            threads,
            out,
            resume,
            None if start is None else start._native,
            on_epoch if heard or bar else None,
            bar.step if bar else None,
        )
    finally:
        if bar is not None:
            bar.close()
    result = Run(run, classes)
    if raised is not None:
        try:
            # Nothing that was learned is lost: whoever catches this can go on with it.
            raised.run = result
        except AttributeError:
            pass
        raise raised
    return result


def train(
    recipe: str | os.PathLike[str] | Mapping[str, Any] = "digits",
    data: Any = None,
    *,
    epochs: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    out: str | os.PathLike[str] | None = None,
    callbacks: Iterable[Callback] = (),
    settings: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Run:
    """Trains a network by mini-batch feasible target propagation.

    ``recipe`` is a dict, the path of a TOML file, or the name of a built-in recipe; ``settings`` is laid over it, with
    keys such as ``"train.epochs"``. ``data`` is a path, ``(X, y)``, ``(X, y, X_test, y_test)`` or a
    :class:`Dataset`; without it the recipe says where the data is. ``epochs`` is another number of them than the
    recipe's, with its schedule scaled to it, as ``--epochs`` of the program; ``settings={"train.epochs": ...}`` leaves the
    schedule as it is.

    Without ``out`` nothing is written. With it, that folder becomes a run folder as the program's, with the same bytes
    for the same recipe and data. Callbacks see each :class:`Epoch`; one that returns something true stops the run,
    one that raises ends it in order, and so does Ctrl-C. What was learned until then is the exception's ``run``, and
    with ``out`` it is saved: :func:`resume` goes on with it.

    >>> import numpy as np, ftprop
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2)).astype(np.float32)
    >>> y = np.where(X[:, 0] * X[:, 1] > 0, "same", "different")
    >>> recipe = {"network": {"preset": "mlp", "widths": [32]}, "train": {"epochs": 40, "batch": 16}}
    >>> run = ftprop.train(recipe, (X, y), device="cpu")
    >>> run.predict(np.array([[1, 1], [-1, 1]], dtype=np.float32)).tolist()
    ['same', 'different']
    >>> stopped = ftprop.train(recipe, (X, y), device="cpu", callbacks=[lambda epoch: epoch.epoch == 3])
    >>> len(stopped.metrics["epoch"]), stopped.finished
    (3, False)
    >>> ftprop.train({"activation": "signum"})
    Traceback (most recent call last):
    ftprop.RecipeError: the recipe's activation: unknown activation `signum`; known are sign, step, qrelu:k, relu, saturated_relu
    """
    taken = dict(recipe) if isinstance(recipe, Mapping) else recipe
    folder = None if out is None else Path(out)
    return _go(taken, settings, epochs, data, device, threads, folder, False, callbacks, progress)


def resume(
    out: str | os.PathLike[str],
    data: Any = None,
    *,
    epochs: int | None = None,
    device: str = "auto",
    threads: int | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool | None = None,
) -> Run:
    """Goes on with a run where it stopped; ends with the bytes that it would have ended with at once.

    A run on arrays needs the same arrays again.
    """
    return _go("digits", None, epochs, data, device, threads, Path(out), True, callbacks, progress)


def recipes() -> list[str]:
    """The names of the built-in recipes.

    >>> import ftprop
    >>> ftprop.recipes()[:2]
    ['digits', 'convnet4-sign-sste']
    """
    return _native.recipe_names()


def untrained(
    recipe: str | os.PathLike[str] | Mapping[str, Any], input_shape: tuple[int, ...], classes: Any = 10
) -> Run:
    """A recipe's network where training would start from: to look at, or to train in PyTorch.

    ``input_shape`` is ``(features,)`` or ``(height, width, channels)``; ``classes`` a number of them, or their names.

    >>> import ftprop
    >>> ftprop.untrained("convnet8-sign-ftpsh", (32, 32, 3)).parameters
    1492554
    """
    if len(input_shape) not in (1, 3) or any(side < 1 for side in input_shape):
        raise ValueError(f"input_shape: expected (features,) or (height, width, channels), found {input_shape}")
    height, width, channels = input_shape if len(input_shape) == 3 else (1, 1, input_shape[0])
    known = np.arange(classes) if isinstance(classes, int) else np.asarray(classes)
    taken = dict(recipe) if isinstance(recipe, Mapping) else recipe
    names = _arrays.names_of(_arrays.labels(known, None, "classes"))
    return Run(_native.initial(taken, (int(height), int(width), int(channels)), names), known)
