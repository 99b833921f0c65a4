import errno
import io
import os

from rich.console import Console

from pilotfish.cli.service_lines import Printer


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_takes_lines_and_not_the_services() -> None:
    printer = Printer(Console(file=FullDisk()))
    printer.line("target_service", "target_service ready on 127.0.0.1:1 (fake)")
    printer.up("127.0.0.1:1")
    printer.stopped()
