"""The head of an HTTP/1.1 request (RFC 9112), where uvicorn takes it as it comes."""

from __future__ import annotations

import httptools

from orchestrator.http.message_bounds import BadMessageError

Headers = list[tuple[bytes, bytes]]
"""Names in lower case."""


def check_head(headers: Headers, version: str) -> None:
    """Raises BadMessageError for a request that two servers could understand in two ways."""
    num_hosts = sum(name == b"host" for name, _ in headers)
    if num_hosts > 1 or (num_hosts == 0 and version == "1.1"):
        raise BadMessageError(f"the request has {num_hosts} headers `host`; one is needed")
    codings = b",".join(value for name, value in headers if name == b"transfer-encoding")
    if codings.strip().lower() not in (b"", b"chunked"):
        raise BadMessageError("the request has a transfer coding other than `chunked`")


def origin_form(method: bytes, target: bytes, headers: Headers) -> bytes:
    """The target as path and query.

    Where the target is a whole URL, as proxies are asked, its host is put in place of the header's (RFC 9112, 3.2.2).
    Raises BadMessageError for a target that is no resource.
    """
    if target.startswith(b"/"):
        return target
    if target == b"*" and method == b"OPTIONS":
        return b"/"
    try:
        url = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        url = None
    if method == b"CONNECT" or url is None or not url.host or url.schema.lower() not in (b"http", b"https"):
        raise BadMessageError("the request's target is neither a path nor a URL")
    host = b"[%b]" % url.host if b":" in url.host else url.host
    authority = host if url.port is None else b"%b:%d" % (host, url.port)
    headers[:] = [(b"host", authority), *((name, value) for name, value in headers if name != b"host")]
    return (url.path or b"/") + (b"" if url.query is None else b"?" + url.query)


def without_offer(method: bytes, target: bytes, version: str, headers: Headers) -> bytes:
    """The head as it came, but for the protocols that it offers to go on with: a server need take none (RFC 9110, 7.8),
    and then it is a request like any other."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    lines += [b"%b: %b" % (name, value) for name, value in headers if name != b"upgrade"]
    return b"\r\n".join([*lines, b"", b""])
