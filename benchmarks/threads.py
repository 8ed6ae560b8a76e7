"""Judge the environments of issue threads by the versions that the threads state.

`python benchmarks/threads.py [-v]` reads threads.tsv. It has a row for each environment: repository and
number of its thread, whether training failed or worked (possibly after the fix), the packages or parts that
the failure concerns, the facts that the thread states and, from sample 5 on, the failure and its cure there.
Versions that a thread does not state are left out; if the failure depends on one, the version of the
thread's date is used. Only failures that versions, machine and settings decide are listed. For each sample
it prints how many failures have an error or a warning, and how many working environments have an error. `-v`
lists the wrong answers. Findings about something else count too, so read them.

Sample 1 was drawn on 2026-11-23, and the causes of its misses were fixed. Each later sample was drawn,
written down and judged once before anything was changed for it, so its first figure is an estimate for
threads that were not read before. Sample 5: 16 of 41 failures told (26 to 54 %, Wilson, 95 %), 0 of 47
working environments accused (up to 8 %). Sample 6, after the rules that sample 5 led to: 5 of 20 told (11 to
47 %), 0 of 15 accused (up to 20 %); five of the others are one failure, the loss of accumulated batches in
transformers 4.46 to 4.49. Sample 7: 26 of 40 told (49 to 78 %), 0 of 22 accused (up to 15 %); ten of the
failures are names that PEFT, DeepSpeed or vLLM import from another release. One of its rows named PEFT 0.6.0,
which does not print the message of its thread; it says 0.6.1 since. Facts that a thread does not state are
not added, so a rule that waits for one counts as a miss.

Sample 8: 18 of 42 told (29 to 58 %) and one more by a finding about something else, 0 of 20 accused (up to
16 %). Two rows are weaker than they look: no release of transformers prints the message of textgen#2805, and
the list of packages of unsloth#2403 was cut before torch. Three working environments that were in an earlier
sample were replaced by the next ones that the same searches had found.

Sample 9: 11 of 42 told (15 to 41 %), 0 of 21 accused (up to 15 %). A third of its failures are pydantic
beside Ray or DeepSpeed, and engines that another release of vLLM or transformers replaced. Versions that a
thread leaves to its date: Unsloth, OpenRLHF, Ray and vLLM in vllm#423, xFormers from the torch that it names.

Sample 10: 18 of 30 told (42 to 75 %), 0 of 12 accused (up to 24 %). One of the 18 rests on requirements that
no release meets, not on the check that the thread quotes. Versions that threads leave to their date: see its
commit.

Sample 11: 15 of 35 told (28 to 59 %) and one more by a finding about something else (the MXFP4 base of
transformers#39969, whose findings name transformers for another reason, so the script counts 16), 0 of 20
working environments accused (up to 16 %). It was drawn by queries about kinds of failures, and each thread
of 2024 to 2026 that states versions or a machine and a cause or cure was taken. Versions that threads leave
to their date: see its commit. One row named flash-linear-attention 0.4.2, which does not print the message of
its thread; it says 0.5.0 since. With the three rules that it led to, 19 are told by the script.

Sample 12: 9 of 20 told (26 to 66 %) and one more by a finding about something else (prefix tuning in
trl#4248, whose finding names peft for another reason, so the script counts 10), 0 of 14 working environments
accused (up to 22 %). It was drawn by queries about kinds of failures and trainers, and each thread of 2024 to
2026 that states versions or a machine and a cause or cure was taken; 13 of its 20 threads are also in sample
18 of explain_threads.tsv. One row spelled an adapter in a way that no fact has, and was corrected before any
row was judged. Versions that threads leave to their date: see its commit.

Sample 13: 12 of 30 told (25 to 58 %), 0 of 21 working environments accused (up to 15 %). It was drawn by
queries about kinds of failures and pairs of packages, from 2024 to 2026; five rows whose threads the table
already had were dropped before any row was judged. One of its rows named a Triton that its thread does not
state and that knows the GPU; it says what the thread's torch pins since. Six of the misses are GPUs that the
ptxas of a Triton wheel, or its 16-bit kernels, do not support. With what it led to, 22 are told; three of the
others show a finding that waits for a fact, which the script does not count.

Sample 14, drawn in the same way after the rules that sample 13 led to and left unmended: 4 of 7 told (25 to
84 %), 0 of 7 accused (up to 35 %). Missed: a flash-attn without a label beside another torch, Ray, Unsloth.

Sample 15, drawn in the same way and committed before anything was judged: 11 of 25 told (27 to 63 %), 0 of
17 working environments accused (up to 18 %). Versions that threads leave to their date: see its commit.
What was built after it tells two more, 13 of 25: symbols of compiled modules (sglang#5100), and the table
of nemo-toolkit. The other misses: three compiled extensions whose release says nothing of what they were
compiled for, a method that Unsloth puts into transformers' class, a function that pydantic 2 refuses,
Triton under another name, a check that an option reaches, two faults inside engines, a user's own call, and
two causes that no file shows.

Sample 16, drawn in the same way and committed before anything was judged: 12 of 23 told (33 to 71 %), 1 of
9 working environments accused (2 to 44 %): vLLM beside vllm-ascend, whose compiled modules nothing loads.
That was mended, and a warning about a wheel for another CUDA, so that none of the 9 is accused. Versions that
threads leave to their date: see its commit. Missed: a package that the atlas does not have (click, beside
Ray), two faults at run time inside PEFT with torchao, one in DeepSpeed, a method that Python 3.14 calls with
another argument, an import that liger-kernel makes lazily, the code of a model's repository, two builds of
flash-attn, a release without a wheel for macOS, and a cause that depends on an unstated NumPy.

Sample 17, drawn in the same way and committed before anything was judged: 21 of 31 told (50 to 81 %), 1 of
16 working environments accused (1 to 28 %): a B200 beside a torch 2.7.1 whose thread does not say for which
CUDA it was built, and which counts as the build of the public index. Versions that threads leave to their
date: see its commit. Missed: six of packages without a table (FlagEmbedding, colbert-ai, gradio twice, and
wilds and safe-mol, which train no language model), code for an NPU, two faults inside an engine (a dictionary
that DeepSpeed cannot mark, LightningCLI of lightning 2.5.5), and a DeepSpeed rule that waits for the ZeRO
stage.

Sample 18, drawn in the same way and committed before anything was judged: 12 of 22 told (35 to 73 %), 0 of
17 working environments accused (up to 18 %). Versions that threads leave to their date: see its commit. One
row named openpipe-art 0.5.4, which does not have the import of its thread; it says 0.5.5 since. lighteval
0.13.0 takes a vLLM outside its bounds as absent, so that its row cannot fail as the thread says. Missed: two
packages that the atlas does not have (openpipe-art, LMCache), a module that no entry reached
(llmcompressor.modifiers.quantization), a name that an older Python lacks (unsloth-zoo), an attribute of a
class that Unsloth generates, a class that LMDeploy puts in the place of transformers', a module that one
model needs (auto-round), FastAPI 0.113 itself, and a compiler error of Triton on an H100. With the tables
that it led to, 14 are told.

Sample 19, drawn in the same way and committed before anything was judged: the script counted 9 of 23 told
(22 to 59 %), two of them by findings about something else (setfit#647, heretic#243), so 7 of 23 (16 to
51 %); 0 of 17 working environments accused (up to 18 %). Versions that threads leave to their date: see its
commit. Three rows could not fail as their threads say: LoRA does not reach the import of peft#3571 (it says
VeRA since), vLLM 0.20 not that of oumi#2586 (0.16.0 since), and the published verl 0.2 takes the vLLM of
verl#513. Missed: a method that pickle of Python 3.14 calls otherwise, arguments that callbacks of
transformers read (SetFit), an attribute in a function (evaluate), two FlashAttentions under one name
(vllm#32974), a package for FlashAttention 4 (oumi#2586), a module that no entry reaches (NeMo's nlp,
Liger's ORPO trainer), a release older than the atlas, a package that it does not have (flashinfer), two
keywords or calls inside methods, a window that only an option reaches, and a fault inside an engine. With
the rules that it led to, 13 are told.

Sample 20, drawn in the same way afterwards, with four rules of sample 19 in place: the script counted 7 of
9 told (45 to 94 %), one of them by a finding about something else (OpenRLHF#922), so 6 of 9 (35 to 88 %); 0
of 6 accused (up to 39 %). None of the new rules is among those that told. Missed: an import in a function
of verl's workers, which has a rule since that waits for the kind of parallelism, and flash-attn 1.

Sample 21, drawn in the same way and committed before anything was judged: 8 of 19 told (23 to 64 %), 0 of
11 working environments accused (up to 26 %). Versions that threads leave to their date: see its commit. One
kind of parallelism was spelled in a way that no fact has, and was corrected after four rows were judged. Two
rows could not fail as their threads say: unsloth 2025.3.9 does not ask for the name of unsloth#1992
(2025.3.10 since), and PEFT 0.4.0 has that of ms-swift#4 (0.3.0 since); with these, 10 are told. Missed: two
packages of FlashInfer that have to be of one release, an operator that torch 2.4 refuses, a star import that
cannot be read (torchao 0.1), a module that no entry reaches (optimum's exporters), a keyword that only files
of the old format get, a package that its thread does not name (Transformer Engine), and two faults inside
engines. With the three rules that it led to, 13 are told.

Sample 22, drawn in the same way and committed before anything was judged: 9 of 19 told (27 to 68 %), 0 of
12 working environments accused (up to 24 %). The command counts a tenth, AReaL#979, whose finding is
about something else and stands in its working environment too. One row could not fail as its thread says:
verl 0.5.0 refuses transformers 4.53 itself, and 0.4.1 prints the thread's message. Missed: an attribute
of the Trainer in a package whose trainers were no calls (FlagEmbedding), attributes and keywords within
functions that only some models reach (peft, twice), a model's code while it is quantized, a package that
the atlas does not have (llguidance), a floor whose rule waits for a fact that the thread does not state,
a keyword within an engine, and one whose cause was not found. With the rows added since, FlagEmbedding's
is told, and one more failure in each of samples 11 and 19.

Sample 23, drawn in the same way and committed before anything was judged: the script counted 8 of 18 told,
two of them by findings about something else (unsloth#2718 and 6114), so 6 of 18 (16 to 56 %); 0 of 13
working environments accused (up to 23 %). Versions that threads leave to their date: see its commit. One
trainer was spelled in a way that no fact has, and was corrected before any row was judged. The finding on
verl#4202 names other imports of the same two releases. verl#5087 cannot fail as its thread says: vLLM 0.12.0
has no vllm.worker, so that verl 0.7.0 takes another module. Missed: source text that Unsloth writes into
TRL's and transformers' classes (three), a class that it cannot pickle, a class that it puts in the place of
vLLM's, a package that the atlas does not have (jsonargparse), a check within a call that only FSDP2 reaches,
a call for CPUs alone, a wheel without code for a GPU (LMDeploy), a package that is not there, and one whose
cause was not found. With the five rules that it led to, the script counts 12, and 10 are told for the
reason of their threads: unsloth#2718 and 6114 do not state the unsloth_zoo or the model that the rules ask.

The 68 failures of samples 5 to 9 that were still missed when sample 10 was drawn: 15 have a rule, but the
thread states no model, precision or engine, or an unreleased version; in 15 a package reads what another
one renamed inside its engine, within a method, where no published name shows it; 14 are bounds in code, or
an exception that a few releases raise; 8 are in packages that the atlas does not have; 6 are compiled
extensions without a label, or Triton's compiler; 5 are wrong numbers, hangs and memory; 5 have a torch or a
driver older than the tables. Two ways found most of what was added since: listing the exceptions that only
some releases of a package raise, and a warning that does not wait for a fact which seldom changes the answer.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from envcheck import probes
from envcheck.commands.examine import report_on
from envcheck.commands.loading import knowledge, vocabulary
from envcheck.core.facts_file import load
from envcheck.core.findings import Finding, Report, Verdict
from envcheck.core.rules import Severity

TABLE = Path(__file__).with_name("threads.tsv")


def judged(facts: str) -> Report:
    """Return the report on facts such as `pkg.torch=2.6.0; gpu.name=Tesla T4`."""
    tree: dict[str, Any] = {}
    for part in facts.split("; "):
        key, _, text = part.partition("=")
        family, _, name = key.partition(".")
        value: str | int | bool = text
        if text in ("true", "false"):
            value = text == "true"
        elif text.isdecimal():
            value = int(text)
        if family == "gpu":
            tree["gpu"] = [{name: value}]
        else:
            tree.setdefault(family, {})[name] = value
    tree["gpu"] = tree.get("gpu", []) * int(tree.get("gpus", {}).get("count", 1))
    keys = vocabulary(probes.every_probe())
    return report_on("threads.tsv", load(tree, "threads.tsv", keys), knowledge(), None)


def telling(outcome: str, report: Report) -> list[Finding]:
    """Return the findings that accuse an environment: errors always, warnings only of a failure."""
    levels = {Severity.ERROR, Severity.WARNING} if outcome == "fails" else {Severity.ERROR}
    return [
        each
        for each in report.judgement.findings
        if each.verdict is Verdict.BROKEN and each.severity in levels
    ]


def is_about(finding: Finding, culprits: str) -> bool:
    """Return whether a finding rests on a culprit: a package, or a part such as `gpu` or `model`."""
    keys = {each.fact.key for each in finding.evidence}
    families = {key.partition(".")[0] for key in keys}
    packages = {key.removeprefix("pkg.").partition(".")[0] for key in keys if key.startswith("pkg.")}
    named = {str(each.fact.value) for each in finding.evidence if "packages" in each.fact.key}
    parts = {
        "gpu": "gpu" in families or "gpus.count" in keys,
        "driver": "driver" in families,
        "python": "python" in families,
        "toolkit": any("toolkit" in key for key in keys),
        "model": any(key in keys for key in ("train.model_type", "train.minimum_transformers")),
        "arch": "host.arch" in keys,
        "torch": any(key.startswith(("cuda.", "build.torch", "torch.")) for key in keys),
    }
    return any(
        each in packages or parts.get(each, False) or any(each in text for text in named)
        for each in culprits.split(",")
    )


def main() -> int:
    """Judge all rows and print the figures."""
    counts: Counter[tuple[str, str]] = Counter()
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            sample, outcome = row["sample"], row["outcome"]
            found = telling(outcome, judged(row["facts"]))
            told = any(is_about(each, row["culprits"]) for each in found)
            counts[sample, outcome] += 1
            counts[sample, "told"] += outcome == "fails" and told
            counts[sample, "other"] += outcome == "fails" and bool(found) and not told
            counts[sample, "accused"] += outcome == "works" and bool(found)
            if "-v" in sys.argv and bool(found) != (outcome == "fails"):
                print(f"{row['thread']} {outcome}: {row['facts']}")
    for sample in sorted({key[0] for key in counts}):
        of = {name: counts[sample, name] for name in ("fails", "told", "other", "works", "accused")}
        print(
            f"sample {sample}: {of['told']} of {of['fails']} failures told, {of['other']} more by something "
            f"else; {of['accused']} of {of['works']} working environments accused"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
