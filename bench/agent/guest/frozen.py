"""In a guest: it stops itself, and the host says what comes next.

The host stores the state of a guest that has stopped, and resumes it as often as it likes. A write to the device `pvpanic` stops the
guest within an instruction, and the host's word is read from the firmware's configuration (`fw_cfg`): neither takes any of the
guest's time, so what follows depends on the word alone.
"""

import json
import mmap
import os
from pathlib import Path
from typing import Any

WORD = Path("/sys/firmware/qemu_fw_cfg/by_name/opt/unbloat/word/raw")
PANIC = ("0x1b36", "0x0011")


def stop() -> dict[str, Any]:
    """Stops here; the host's word when it resumes."""
    for device in Path("/sys/bus/pci/devices").iterdir():
        if tuple((device / name).read_text().strip() for name in ("vendor", "device")) == PANIC:
            break
    else:
        raise RuntimeError("no pvpanic")
    (device / "enable").write_text("1")
    opened = os.open(device / "resource0", os.O_RDWR | os.O_SYNC)
    registers = mmap.mmap(opened, 2)
    registers[0] = 1
    registers.close()
    os.close(opened)
    word: dict[str, Any] = json.loads(WORD.read_bytes().decode().rstrip("\0 "))
    return word
