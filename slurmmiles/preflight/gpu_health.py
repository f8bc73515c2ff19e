"""Judges of what `nvidia-smi --query-gpu` (or NVML) says of each GPU: memory repair, throttling,
PCIe link, ECC, what still runs there. Pure; every field is found by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slurmmiles.findings import about, fail, unknown, warn
from slurmmiles.preflight.gpulist import QueriedGpu
from slurmmiles.preflight.text import integer, number
from slurmmiles.report import Finding

# NVML's nvmlClocksEventReasons (nvml.h).
IDLE, APPLICATION_CLOCKS, SW_POWER_CAP, HW_SLOWDOWN = 0x1, 0x2, 0x4, 0x8
SYNC_BOOST, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE, DISPLAY = 0x10, 0x20, 0x40, 0x80, 0x100
_YES, _NO = ("1", "yes", "true", "enabled"), ("0", "no", "false", "disabled")
# More than this in use before the job means that another process is there (Meta GCM's check).
LEFTOVER_MIB = 15.0
# Without a process, the driver itself keeps some hundred MiB on large GPUs.
DRIVER_MIB = 1024.0


def judge_gpus(
    gpus: Sequence[QueriedGpu], node: str = "", *, loaded: bool = False
) -> list[Finding]:
    """Every rule whose field was queried; `loaded`: the GPUs were busy while they were asked."""
    rules: tuple[Callable[[QueriedGpu, str], Iterator[Finding]], ...] = (
        _remapped,
        _throttled,
        _width,
        *((_generation,) if loaded else ()),
        _ecc,
        _leftovers,
    )
    return [f for gpu in gpus for rule in rules for f in rule(gpu, about(node=node, gpu=gpu.index))]


def flag(text: str) -> bool | None:
    """No and 0, Yes and 1; None for [N/A] and other words."""
    word = text.strip().lower()
    return True if word in _YES else False if word in _NO else None


def _remapped(gpu: QueriedGpu, subject: str) -> Iterator[Finding]:
    """NVIDIA's memory error management: a pending remap waits for a reset, a failed one for RMA."""
    said = {
        kind: gpu.fields[f"remapped_rows.{kind}"]
        for kind in ("pending", "failure")
        if f"remapped_rows.{kind}" in gpu.fields
    }
    state = {kind: flag(text) for kind, text in said.items()}
    if state.get("failure"):
        yield fail(
            "row_remap_failure",
            subject,
            "a memory row could not be remapped",
            "have the GPU replaced",
            failure=said["failure"],
        )
    if state.get("pending"):
        yield fail(
            "row_remap_pending",
            subject,
            "a memory row waits to be remapped",
            "reset the GPU, or have the node drained and rebooted, before the run",
            pending=said["pending"],
        )
    if None in state.values():
        yield unknown(
            "row_remap_unknown",
            subject,
            "it does not say whether memory rows were remapped",
            "ask nvidia-smi -q -d ROW_REMAPPER on the node",
            **said,
        )


def _throttled(gpu: QueriedGpu, subject: str) -> Iterator[Finding]:
    for prefix in ("clocks_event_reasons", "clocks_throttle_reasons"):  # old drivers' name
        if f"{prefix}.active" in gpu.fields:
            text = gpu.fields[f"{prefix}.active"]
            bits = _mask(text)
            if bits is None:
                yield unknown(
                    "throttle_unknown",
                    subject,
                    f"its throttle reasons are {text!r}",
                    "ask nvidia-smi -q -d PERFORMANCE on the node",
                )
            else:
                yield from judge_throttle(bits, subject)
            return


def _mask(text: str) -> int | None:
    try:
        return int(text, 16) if text.lower().startswith("0x") else integer(text)
    except ValueError:
        return None


def judge_throttle(bits: int, subject: str) -> Iterator[Finding]:
    """Hardware reasons fail, software reasons are a warning; idle and the power cap are normal."""
    shown = f"0x{bits:016x}"
    hardware = [
        (code, why, fix)
        for bit, code, why, fix in (
            (HW_THERMAL, "hw_thermal", "it is too hot", "check its cooling"),
            (
                HW_POWER_BRAKE,
                "hw_power_brake",
                "the power supply asks for less",
                "check the supply",
            ),
        )
        if bits & bit
    ]
    if bits & HW_SLOWDOWN and not hardware:
        hardware = [("hw_slowdown", "hardware slowdown is active", "check heat and power")]
    for code, why, fix in hardware:
        yield fail(
            code, subject, f"its clocks are cut: {why}", f"{fix}; drain the node", bits=shown
        )
    if bits & SW_THERMAL and not hardware:
        yield warn(
            "sw_thermal",
            subject,
            "its driver lowers the clocks by heat",
            "check cooling",
            bits=shown,
        )
    if bits & APPLICATION_CLOCKS:
        yield warn(
            "clocks_locked",
            subject,
            "somebody set its application clocks",
            "nvidia-smi --reset-applications-clocks, or -rgc",
            bits=shown,
        )


def _width(gpu: QueriedGpu, subject: str) -> Iterator[Finding]:
    """The width never falls to save power, so it is judged at any time."""
    now, full = _pair(gpu, "pcie.link.width")
    if now is not None and full is not None and now < full:
        yield fail(
            "pcie_width_low",
            subject,
            f"its PCIe link is x{now} of x{full}",
            "have the card or its riser reseated",
            width=now,
            max=full,
        )


def _generation(gpu: QueriedGpu, subject: str) -> Iterator[Finding]:
    """Only under load: an idle link falls to generation 1 to save power."""
    now, full = _pair(gpu, "pcie.link.gen")
    if now is not None and full is not None and now < full:
        yield fail(
            "pcie_gen_low",
            subject,
            f"under load its PCIe link is of generation {now} of {full}",
            "look for PCIe errors in the kernel log and have the card reseated",
            generation=now,
            max=full,
        )


def _pair(gpu: QueriedGpu, field: str) -> tuple[int | None, int | None]:
    return integer(gpu.fields.get(f"{field}.current", "")), integer(
        gpu.fields.get(f"{field}.max", "")
    )


def _ecc(gpu: QueriedGpu, subject: str) -> Iterator[Finding]:
    errors = number(gpu.fields.get("ecc.errors.uncorrected.volatile.total", ""))
    if errors:
        yield fail(
            "ecc_uncorrected",
            subject,
            f"{errors:.0f} uncorrected memory errors since the driver was loaded",
            "reset the GPU and look at remapped rows",
            errors=errors,
        )
    if gpu.fields.get("ecc.mode.current", "").strip().lower() == "disabled":
        yield warn("ecc_off", subject, "ECC is off", "nvidia-smi -e 1, then a reset")


def _leftovers(gpu: QueriedGpu, subject: str) -> Iterator[Finding]:
    used, total = (number(gpu.fields.get(f"memory.{k}", "")) for k in ("used", "total"))
    limit = DRIVER_MIB if total is None else max(LEFTOVER_MIB, min(DRIVER_MIB, total / 50))
    if used is not None and used > limit:
        yield warn(
            "gpu_memory_in_use",
            subject,
            f"{used:.0f} MiB are in use before the run",
            "find the process with nvidia-smi; its owner or the administrator can end it",
            used_mib=used,
        )
