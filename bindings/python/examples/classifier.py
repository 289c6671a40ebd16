"""Hard-threshold networks among scikit-learn's estimators."""

from __future__ import annotations

from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

from ftprop import FTPropClassifier


def main() -> None:
    """A pipeline and a small search over activations."""
    X, y = load_breast_cancer(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    network = FTPropClassifier((32,), epochs=30, random_state=0)
    pipeline = make_pipeline(QuantileTransformer(n_quantiles=100), network)
    search = GridSearchCV(pipeline, {"ftpropclassifier__activation": ["sign", "qrelu:3"]}, cv=3)
    search.fit(X_train, y_train)
    print(search.best_params_, search.score(X_test, y_test))
    assert search.score(X_test, y_test) > 0.9


if __name__ == "__main__":
    main()
