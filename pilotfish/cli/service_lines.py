"""What `pilotfish up` prints of its services."""

from __future__ import annotations

import contextlib
import re

from rich.console import Console
from rich.text import Text

from pilotfish.cli.options import DEFAULT_ADDRESS

SERVICE_STYLES = {
    "target_service": "blue",
    "draft_service": "green",
    "orchestrator": "magenta",
    "trainer": "yellow",
    "serve": "cyan",
}
_READY = re.compile(rf"(?P<service>{'|'.join(SERVICE_STYLES)}) ready on .*")


class Printer:
    """What the services say, line by line, with their names."""

    def __init__(self, console: Console, http_url: str = "", *, drain_s: float = 0.0) -> None:
        """http_url: the HTTP API's; empty: it is off, or on a port that the orchestrator's own line shows.

        drain_s: the time that requests under way get when the services stop.
        """
        self._console = console
        self._drain_s = drain_s
        self._http_url = http_url

    def line(self, child: str, line: str) -> None:
        """A child's line; a ready line stands for itself."""
        if match := _READY.fullmatch(line):
            service = match["service"]
            self._print(Text.assemble(("✓ ", "green"), (service, SERVICE_STYLES[service]), line.removeprefix(service)))
        else:
            self._print(Text.assemble((f"{child} | ", SERVICE_STYLES.get(child, "")), line))

    def notice(self, text: str) -> None:
        """What must not be missed."""
        self._print(Text(text, "bold yellow"))

    def up(self, address: str) -> None:
        """All that requests need is there."""
        option = "" if address == DEFAULT_ADDRESS else f" --address {address}"
        http = (" OpenAI's API: ", (f"{self._http_url}/v1", "bold"), ".") if self._http_url else ()
        self._print(Text.assemble("Pilotfish is up on ", (address, "bold"), ".", *http, " Ctrl-C stops it. Try:"))
        self._print(Text(f"  pilotfish generate{option} 'Why is the sky blue?'"))

    def stopping(self) -> None:
        """A signal has come."""
        self._print(Text(f"stopping; requests under way get {self._drain_s:g} s, Ctrl-C again ends them at once"))

    def stopped(self) -> None:
        """All has ended."""
        self._print(Text("stopped"))

    def _print(self, text: Text) -> None:
        with contextlib.suppress(OSError):  # a full disk takes a line, not the services
            self._console.print(text, soft_wrap=True)
            self._console.file.flush()
