"""The scikit-learn estimator."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import ftprop
from ftprop import FTPropClassifier

EXPECTED_TO_FAIL = {
    "check_sample_weight_equivalence_on_dense_data": (
        "an example of weight 2 is seen twice in an epoch, as two would be, but the order of an epoch, and so what is "
        "learned, depends on where in X the examples are"
    ),
}


def test_check_estimator() -> None:
    outcomes = check_estimator(
        FTPropClassifier(random_state=0), expected_failed_checks=EXPECTED_TO_FAIL, on_fail="raise", on_skip=None
    )
    counts = {status: sum(o["status"] == status for o in outcomes) for status in ("passed", "xfail", "failed")}
    assert counts["failed"] == 0 and counts["xfail"] <= 3 and counts["passed"] > 50, counts


@pytest.fixture(scope="module")
def moons():
    return make_moons(300, noise=0.15, random_state=1)


def test_it_learns_searches_and_goes_through_pipelines(moons) -> None:
    X, y = moons
    names = np.array(["left", "right"])[y]
    pipeline = make_pipeline(StandardScaler(), FTPropClassifier((24, 24), epochs=30, random_state=0))
    search = GridSearchCV(pipeline, {"ftpropclassifier__activation": ["sign", "qrelu:3"]}, cv=2)
    search.fit(X, names)
    assert search.score(X, names) > 0.9 and set(search.predict(X)) == {"left", "right"}
    assert cross_val_score(FTPropClassifier((24, 24), epochs=30, random_state=0), X, y, cv=2).mean() > 0.85


def test_random_state_decides(moons) -> None:
    X, y = moons
    fit = lambda seed: FTPropClassifier(epochs=3, random_state=seed).fit(X, y).predict_proba(X)
    np.testing.assert_array_equal(fit(4), fit(4))
    assert np.abs(fit(4) - fit(5)).max() > 1e-3


def test_pickle_joblib_and_clone(moons, tmp_path) -> None:
    import joblib

    X, y = moons
    model = FTPropClassifier(epochs=3, random_state=0).fit(X, y)
    joblib.dump(model, tmp_path / "model.joblib")
    for again in (pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model.joblib")):
        np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
        assert again.classes_.tolist() == [0, 1] and again.n_features_in_ == 2
    assert not hasattr(clone(model), "run_")


def test_weights_are_how_often_an_example_is_seen(moons) -> None:
    X, y = moons
    # Weight zero is as if it were not there, and order is kept.
    weights = (np.arange(300) % 3 > 0).astype(float)
    weighted = FTPropClassifier(epochs=3, random_state=0).fit(X, y, sample_weight=weights)
    without = FTPropClassifier(epochs=3, random_state=0).fit(X[weights > 0], y[weights > 0])
    np.testing.assert_array_equal(weighted.predict_proba(X), without.predict_proba(X))
    twice = FTPropClassifier(epochs=3, random_state=0).fit(X, y, sample_weight=np.full(300, 2))
    repeated = FTPropClassifier(epochs=3, random_state=0).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
    np.testing.assert_array_equal(twice.predict_proba(X), repeated.predict_proba(X))
    # Much weight on one class moves the boundary towards the other.
    heavy = FTPropClassifier(epochs=10, random_state=0).fit(X, y, sample_weight=np.where(y == 1, 8.5, 0.25))
    assert (heavy.predict(X) == 1).mean() > 0.5
    with pytest.raises(ValueError, match="sample_weight: expected"):
        FTPropClassifier().fit(X, y, sample_weight=-weights)


def test_warm_start_goes_on(moons) -> None:
    X, y = moons
    model = FTPropClassifier((24, 24), epochs=4, random_state=0, warm_start=True).fit(X, y)
    first = model.run_.metrics["train_loss"]
    model.fit(X, y)
    assert model.run_.metrics["train_loss"][0] < first[0]
    with pytest.raises(ValueError, match="warm_start: expected the classes"):
        model.fit(X, y + 5)


def test_pictures_as_they_are_and_as_rows(digits) -> None:
    X, y = digits[0][:600], digits[1][:600]
    pictures = FTPropClassifier(epochs=6, random_state=0).fit(X, y)
    rows = FTPropClassifier(epochs=6, random_state=0, image_shape=(8, 8, 1)).fit(X.reshape(600, 64), y)
    assert pictures.score(X, y) > 0.95 and "conv 32" in pictures.run_.summary()
    np.testing.assert_array_equal(pictures.predict_proba(X), rows.predict_proba(X.reshape(600, 64)))


def test_a_validation_part_chooses_the_epoch(moons) -> None:
    X, y = moons
    model = FTPropClassifier(epochs=8, validation_fraction=0.2, random_state=0).fit(X, y)
    assert model.run_.best_epoch == 1 + int(model.run_.metrics["validation_top1"].argmax())
    assert model.n_iter_ == 8 and isinstance(model.run_, ftprop.Run)
