"""What can go wrong, as a small hierarchy; each text is one line that says what is wrong and what to do."""

from __future__ import annotations


class FtpropError(Exception):
    """Anything that ftprop refuses or cannot do."""


class RecipeError(FtpropError, ValueError):
    """A recipe or a setting of it: unknown, of the wrong kind, or not fitting the rest."""


class DataError(FtpropError, ValueError):
    """Examples or labels that cannot be used."""


class ModelError(FtpropError, ValueError):
    """A file that is no model, or one of another network."""


class FileError(FtpropError, OSError):
    """A file or folder that cannot be read or written, or that is taken."""


class DeviceError(FtpropError, RuntimeError):
    """A device that is not there or cannot do what it is asked."""


class TrainingError(FtpropError, RuntimeError):
    """Training that came to nothing, such as a loss that is no longer a number."""


class SearchError(FtpropError, ValueError):
    """A search that cannot begin, or a certificate that does not hold."""
