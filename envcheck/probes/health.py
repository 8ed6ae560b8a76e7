"""Read a GPU's state from NVML's answers: errors, required repairs, the fabric, virtualization. Pure.

Each fact comes from one call. A fact is Absent if the card lacks the feature (no ECC, no fabric). A call that
was not made, because the library lacks it or the GPU had stopped answering, gives an Unknown with
`asked=False`, so that it makes no rule undecided: one finding on the library or on the GPU already reports
the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envcheck.core.facts import Absent, Fact, Key, Kind, Known, Reading, Unknown
from envcheck.core.nvidia import FUNCTION_NOT_FOUND, GONE, NOT_SUPPORTED, code_in_words
from envcheck.probes.nvml import DriverProblem, FactSource, NvmlAnswers, garbage

FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
FABRIC_HEALTH = ("not_supported", "healthy", "unhealthy", "limited_capacity")
RECOVERY = (
    "none",
    "gpu_reset",
    "node_reboot",
    "drain_p2p",
    "drain_and_reset",
    "recover_imex_domain",
    "bus_reset",
    "system_reboot",
)
VIRTUALIZATION = ("none", "passthrough", "vgpu", "host_vgpu", "host_vsga")
"""The words for NVML's numbers, in their order (nvml.h: nvmlGpuFabricState_t, its health summary,
nvmlDeviceGpuRecoveryAction_t, nvmlGpuVirtualizationMode_t)."""

MOST_ERRORS = 1 << 40
INVALID_ARGUMENT = 2
_UNHEALTHY = ((0, 0x3, (1,)), (4, 0x3, (1,)), (8, 0xF, (2, 3, 4, 5, 6, 7, 8)))
"""Bad values in the health mask (shift, mask, values): less bandwidth, a bad route, a wrong configuration.

They are used where the struct has no summary.
"""

YIELDS = {
    "gpu.error": Key(
        Kind.WORD, "why the driver cannot use the GPU: NVML's code and text, no answer, crashed"
    ),
    "gpu.memory_used_mib": Key(Kind.NUMBER, "memory in use or reserved by the driver, MiB"),
    "gpu.memory_shared": Key(Kind.FLAG, "the GPU has no memory of its own: it uses the host's"),
    "gpu.ecc": Key(Kind.FLAG, "ECC is on; absent if the card has none"),
    "gpu.ecc_pending": Key(Kind.FLAG, "ECC will be on after the next reset"),
    "gpu.ecc_uncorrected": Key(Kind.NUMBER, "uncorrectable memory errors since the last reset"),
    "gpu.ecc_uncorrected_ever": Key(Kind.NUMBER, "uncorrectable memory errors since the card was made"),
    "gpu.remap_pending": Key(Kind.FLAG, "a bad row of memory will be replaced by a spare at the next reset"),
    "gpu.remap_failed": Key(Kind.FLAG, "a bad row of memory could not be replaced"),
    "gpu.recovery": Key(
        Kind.WORD, "the recovery action that the driver requests; absent if it has no such flag", RECOVERY
    ),
    "gpu.fabric": Key(
        Kind.WORD, "the GPU's state of joining the NVLink fabric; absent if it joins none", FABRIC_STATES
    ),
    "gpu.fabric_error": Key(Kind.WORD, "error of joining the fabric: NVML's code and text"),
    "gpu.fabric_health": Key(Kind.WORD, "the fabric's report on the GPU's links", FABRIC_HEALTH),
    "gpu.persistence": Key(Kind.FLAG, "the driver stays loaded while the GPU is idle"),
    "gpu.virtualization": Key(Kind.WORD, "whether this is a virtual GPU, or one passed on", VIRTUALIZATION),
    "gpu.vgpu_licensed": Key(Kind.FLAG, "a virtual GPU has its licence; absent if none is needed"),
}


def _flag_at(what: str, place: int, length: int) -> Callable[[object], Reading]:
    """Return a reader of one of the last two flags in an answer of `length` numbers.

    If one of the two flags is garbage, both are.
    """

    def read(value: object) -> Reading:
        if (
            isinstance(value, list)
            and len(value) == length
            and all(number in (0, 1) for number in value[-2:])
        ):
            return Known(value[place] == 1)
        return garbage(what, value)

    return read


def flag(value: object) -> Reading:
    """Read NVML's nvmlEnableState_t."""
    return Known(value == 1) if value in (0, 1) and isinstance(value, int) else garbage("state", value)


def errors(value: object) -> Reading:
    """Read a counter of errors."""
    if isinstance(value, int) and 0 <= value < MOST_ERRORS:
        return Known(value)
    return garbage("number of errors", value)


def recovery(value: object) -> Reading:
    """Read the recovery action from [the field's code, value]."""
    match value:
        case [0, int(action)] if 0 <= action < len(RECOVERY):
            return Known(RECOVERY[action])
        case [int(code), int()] if code in (INVALID_ARGUMENT, NOT_SUPPORTED):
            return Absent()  # a driver before R570, or a card without the flag
        case [int(code), int()] if code != 0:
            return Unknown(f"NVML nvmlDeviceGetFieldValues: {code_in_words(code)}")
    return garbage("recovery action", value)


def fabric(value: object) -> Reading:
    """Read the GPU's progress in joining the fabric, from [state, status, health mask, health summary]."""
    match value:
        case [0, *_]:
            return Absent()
        case [int(state), *_] if 0 < state < len(FABRIC_STATES):
            return Known(FABRIC_STATES[state])
        case _:
            return garbage("fabric state", value)


def fabric_error(value: object) -> Reading:
    """Read the status, which has a meaning only where the state is completed."""
    match value:
        case [3, int(status), *_]:
            return Known(code_in_words(status)) if status else Absent()
        case [0 | 1 | 2, int(), *_]:
            return Absent()
        case _:
            return garbage("fabric state", value)


def fabric_health(value: object) -> Reading:
    """Read the fabric's health from the summary, or from the mask of an older struct."""
    match value:
        case [3, _, _, int(summary)] if 0 < summary < len(FABRIC_HEALTH):
            return Known(FABRIC_HEALTH[summary])
        case [3, _, int(mask), None | 0] if mask:
            bad = any((mask >> shift) & width in words for shift, width, words in _UNHEALTHY)
            return Known("unhealthy" if bad else "healthy")
        case [0 | 1 | 2 | 3, _, None | 0, None | 0] | [0 | 1 | 2, _, _, _]:
            return Absent()
        case _:
            return garbage("fabric health", value)


def virtualization(value: object) -> Reading:
    """Read how the GPU is virtualized, in NVML's term."""
    if isinstance(value, int) and 0 <= value < len(VIRTUALIZATION):
        return Known(VIRTUALIZATION[value])
    return garbage("virtualization mode", value)


def licensed(value: object) -> Reading:
    """Read whether a feature is licensed, from [a licence is needed, states], where state 1 is licensed."""
    match value:
        case [0, _]:
            return Absent()
        case [1, [*states]] if states and all(isinstance(state, int) for state in states):
            return Known(1 in states)
    return garbage("licence", value)


_ROWS, _ECC = "nvmlDeviceGetRemappedRows", "nvmlDeviceGetEccMode"
FACTS: Mapping[str, FactSource] = {
    "gpu.ecc": FactSource(_ECC, _flag_at("ECC mode", 0, 2)),
    "gpu.ecc_pending": FactSource(_ECC, _flag_at("ECC mode", 1, 2)),
    "gpu.ecc_uncorrected": FactSource("nvmlDeviceGetTotalEccErrors volatile", errors),
    "gpu.ecc_uncorrected_ever": FactSource("nvmlDeviceGetTotalEccErrors aggregate", errors),
    "gpu.remap_pending": FactSource(_ROWS, _flag_at("row remapping", 2, 4)),
    "gpu.remap_failed": FactSource(_ROWS, _flag_at("row remapping", 3, 4)),
    "gpu.recovery": FactSource("nvmlDeviceGetFieldValues", recovery),
    "gpu.fabric": FactSource("nvmlDeviceGetGpuFabricInfoV", fabric),
    "gpu.fabric_error": FactSource("nvmlDeviceGetGpuFabricInfoV", fabric_error),
    "gpu.fabric_health": FactSource("nvmlDeviceGetGpuFabricInfoV", fabric_health),
    "gpu.persistence": FactSource("nvmlDeviceGetPersistenceMode", flag),
    "gpu.virtualization": FactSource("nvmlDeviceGetVirtualizationMode", virtualization),
    "gpu.vgpu_licensed": FactSource("nvmlDeviceGetGridLicensableFeatures_v4", licensed),
}


def facts(answers: NvmlAnswers, gpu: int, *, mig: bool) -> dict[str, Fact]:
    """Return the state of one GPU that NVML counted; `mig` says whether MIG is on."""
    found = {key: _fact(answers, gpu, key, mig=mig) for key in FACTS}
    mode = found["gpu.virtualization"]
    if mode.value != "vgpu" and not isinstance(mode.reading, Unknown):
        found["gpu.vgpu_licensed"] = Fact("gpu.vgpu_licensed", Absent(), mode.source)
    found["gpu.error"] = _error(answers, gpu)
    return found


def never_asked(why: str) -> dict[str, Fact]:
    """Return unknown facts for a GPU whose driver does not work; another fact reports that."""
    return {key: Fact(key, Unknown(why, asked=False)) for key in YIELDS}


def _fact(answers: NvmlAnswers, gpu: int, key: str, *, mig: bool) -> Fact:
    call, read = FACTS[key]
    older = "nvmlDeviceGetGpuFabricInfo"
    if call.startswith(older) and (gpu, older) in answers.answers:
        call = older
    problem = answers.problems.get((gpu, call), DriverProblem(""))
    code = problem.code
    source = f"NVML {call}" + (f": {code_in_words(code)}" if code is not None else "")
    value = answers.value(gpu, call)
    if code == NOT_SUPPORTED and not mig:
        return Fact(key, Absent(), source)
    reading = read(value)
    if isinstance(reading, Unknown) and isinstance(value, Unknown):
        # NVML supports few of these calls for a card in MIG slices. A call newer than the library is refused
        # as not found. One that is newer than nvidia-ml-py, or was not made, has no code and lost no child.
        refused = code not in (None, NOT_SUPPORTED, FUNCTION_NOT_FOUND)
        reading = Unknown(value.why, asked=refused or bool(problem.lost))
    return Fact(key, reading, source)


def _error(answers: NvmlAnswers, gpu: int) -> Fact:
    """Return `gpu.error`: absent if NVML gave a handle, the GPU answers, and no call reports it as gone."""
    handle = "nvmlDeviceGetHandleByIndex"
    for (other, call), problem in answers.problems.items():
        if other != gpu or not (problem.lost or problem.code in GONE or call == handle):
            continue
        word = problem.lost or (code_in_words(problem.code) if problem.code is not None else problem.why)
        return Fact("gpu.error", Known(word), problem.why)
    if (gpu, handle) not in answers.answers:
        return Fact("gpu.error", Unknown(f"GPU {gpu} was not queried", asked=False))
    return Fact("gpu.error", Absent(), f"NVML {handle}")
