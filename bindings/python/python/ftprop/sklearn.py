"""A scikit-learn estimator (extra ``sklearn``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from . import _arrays
from ._data import Dataset
from ._run import Run, Which
from ._train import Callback, _go

#: A small convolutional network for pictures, where no other is asked for.
_CONVOLUTIONS: list[dict[str, Any]] = [
    {"kind": "conv", "out": 32, "kernel": 3, "pad": 1},
    {"kind": "batch_norm"},
    {"kind": "act"},
    {"kind": "max_pool", "kernel": 2},
    {"kind": "conv", "out": 64, "kernel": 3, "pad": 1},
    {"kind": "batch_norm"},
    {"kind": "act"},
    {"kind": "fc"},
]


class FTPropClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A deep network with hard-threshold units, trained by feasible target propagation.

    Parameters
    ----------
    hidden_layer_sizes : widths of the hidden layers; for pictures see ``network``.
    activation : ``sign``, ``step``, ``qrelu:k``, ``relu`` or ``saturated_relu``.
    layer_loss, target_rule : how hard units learn, as in a recipe.
    network : a preset's name, or a list of layers as a recipe has them. By default fully connected layers for a table,
        and a small convolutional network for pictures.
    epochs, batch_size, learning_rate : how long and how fast.
    validation_fraction : held out to choose the best epoch; with 0 the last one counts.
    image_shape : rows, columns and channels, for pictures that come as rows of a table; X may also be pictures itself.
    settings : any other of a recipe's settings, such as ``{"optimizer.weight_decay": 1e-4}``.
    warm_start : whether ``fit`` goes on from what it learned before.
    callbacks : see each epoch, as in :func:`ftprop.train`.
    device : ``auto``, ``cpu`` or ``cuda:0``; n_jobs : threads, ``None`` for one, -1 for all.
    random_state : what all randomness depends on.

    Attributes
    ----------
    classes_, n_features_in_ : as every classifier has them.
    run_ : the trained network, a :class:`ftprop.Run`.
    n_iter_ : epochs that were trained.

    >>> from ftprop import FTPropClassifier
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(400, noise=0.1, random_state=0)
    >>> bool(FTPropClassifier((32, 32), random_state=0).fit(X, y).score(X, y) > 0.95)
    True
    """

    def __init__(
        self,
        hidden_layer_sizes: Sequence[int] = (64,),
        *,
        activation: str = "sign",
        layer_loss: str = "soft_hinge",
        target_rule: str = "gradient_sign",
        network: str | Sequence[Mapping[str, Any]] | None = None,
        epochs: int = 60,
        batch_size: int = 32,
        learning_rate: float = 3e-3,
        validation_fraction: float = 0.0,
        image_shape: tuple[int, ...] | None = None,
        settings: Mapping[str, Any] | None = None,
        warm_start: bool = False,
        callbacks: Sequence[Callback] | None = None,
        device: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.layer_loss = layer_loss
        self.target_rule = target_rule
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.image_shape = image_shape
        self.settings = settings
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    run_: Run
    classes_: npt.NDArray[Any]
    n_iter_: int

    def _examples(self, X: Any, y: Any = "no_validation", reset: bool = False) -> Any:
        """Checked as scikit-learn checks, bytes kept as bytes where they are pictures."""
        pictures = self.image_shape is not None or getattr(X, "ndim", 2) > 2
        dtype = np.uint8 if pictures and getattr(X, "dtype", None) == np.uint8 else np.float32
        checked = validate_data(self, X, y, reset=reset, dtype=dtype, order="C", allow_nd=True)
        examples, labels = checked if isinstance(checked, tuple) else (checked, None)
        if self.image_shape is not None and examples.ndim == 2:
            examples = examples.reshape(len(examples), *self.image_shape)
        return examples, labels

    def _network(self, examples: npt.NDArray[Any]) -> dict[str, Any]:
        if isinstance(self.network, str):
            return {"preset": self.network}
        if self.network is not None:
            return {"layers": [dict(layer) for layer in self.network]}
        if examples.ndim == 2 or min(examples.shape[1:3]) < 4:
            return {"preset": "mlp", "widths": [int(width) for width in self.hidden_layer_sizes]}
        return {"layers": _CONVOLUTIONS}

    def _threads(self) -> int:
        # As scikit-learn counts them: none is one, and -1 all.
        return 1 if self.n_jobs is None else 0 if self.n_jobs < 0 else int(self.n_jobs)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> FTPropClassifier:
        """Trains on a table or pictures. An example is seen as often in an epoch as its weight says."""
        before: Run | None = getattr(self, "run_", None) if self.warm_start else None
        examples, labels = self._examples(X, y, reset=before is None)
        check_classification_targets(labels)
        labels = np.asarray(labels)
        classes = np.unique(labels)
        if len(classes) < 2:
            raise ValueError(f"y: expected at least two classes to tell apart, found 1 class: {classes[0]!r}")
        if before is not None and not np.array_equal(classes, self.classes_):
            raise ValueError("warm_start: expected the classes that were learned before")
        normalize: dict[str, Any] = {}
        if before is not None:
            scale, mean, std = before._native.normalize
            normalize = {"scale": scale, "mean": mean, "std": std}
        data = Dataset(examples, labels, test_fraction=0, sample_weight=sample_weight, **normalize)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        learned, _ = data._native.counts()
        held_out = int(round(self.validation_fraction * learned)) if self.validation_fraction < 1 else 0
        recipe = {
            "name": "classifier",
            "activation": self.activation,
            "layer_loss": self.layer_loss,
            "target_rule": self.target_rule,
            "network": self._network(examples),
            "data": {"validation": float(self.validation_fraction)},
            "train": {
                "epochs": self.epochs,
                "batch": max(1, min(self.batch_size, learned - held_out)),
                "seed": seed,
            },
            "optimizer": {"name": "adam", "lr": float(self.learning_rate)},
        }
        heard = self.callbacks or ()
        self.run_ = _go(
            recipe, self.settings, None, data, self.device, self._threads(), None, False, heard, False, before
        )
        self.classes_ = classes
        self.n_iter_ = len(self.run_.metrics.get("epoch", ()))
        return self

    @property
    def _which(self) -> Which:
        return "best" if self.validation_fraction else "last"

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """What the network says: one number a class, or, of two classes, how much more it is for the second."""
        check_is_fitted(self)
        logits = self.run_.logits(self._examples(X)[0], which=self._which)
        if len(self.classes_) == 2:
            difference: npt.NDArray[np.float32] = logits[:, 1] - logits[:, 0]
            return difference
        return logits

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The network's confidence in each class."""
        check_is_fitted(self)
        return _arrays.softmax(self.run_.logits(self._examples(X)[0], which=self._which))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The most likely class of each example."""
        check_is_fitted(self)
        logits = self.run_.logits(self._examples(X)[0], which=self._which)
        predicted: npt.NDArray[Any] = self.classes_[logits.argmax(axis=1)]
        return predicted
