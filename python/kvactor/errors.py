"""Errors of the package. All derive from KvactorError."""


class KvactorError(Exception):
    """Something failed between the client and the daemon."""


class UnreachableError(KvactorError, ConnectionError):
    """There is no daemon, it went away, or it did not answer in time."""


class ProtocolError(KvactorError):
    """The daemon speaks another version of the wire, or sent what it must not."""


class RefusedError(KvactorError):
    """The daemon refused a request, which changed nothing.

    code: a word of the engine, such as out_of_pages or bad_request.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
