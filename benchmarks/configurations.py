"""Score what `--train` reads in launch scripts and configuration files of public repositories.

    python benchmarks/configurations.py FOLDER [--part PART] [--wrong]

FOLDER holds the repositories as `OWNER+NAME/`, each at the commit that `configurations.tsv` names; others are
counted as not scored. That table lists each file, the folder from which it is launched, and the facts that a
careful reader knows from it, from the files that it names and from the documentation of its trainer. It was
written before envcheck's answers were seen. A fact may have several right values (`ddp|none`). If `?` is
among them, the reader was not certain: the fact counts only if envcheck gives a value that is not listed,
which is false. The files of the part `held` are scored but were never looked at.

The files of the other parts were read by a person before envcheck read them; afterwards the causes of wrong
answers were fixed in envcheck. The figures are the shares of facts that were right, and false:

    part      files   repositories   at first sight    after
    unseen      132             24   85.1 %, 1.8 %     99.5 %, 0
    fresh       172             40   86.1 %, 1.5 %     99.4 %, 0
    second       48             16   94.0 %, 0         99.6 %, 0
    third       107             46   85.4 %, 1.2 %     99.2 %, 0
    fourth       51             20   89.7 %, 2.2 %     98.5 %, 0
    fifth        75             25   74.4 %, 6.0 %     94.5 %, 0
    sixth        37             14   83.0 %, 0.4 %     99.1 %, 0
    seventh      63             23   84.8 %, 2.0 %     97.5 %, 0
    eighth       19              7   78.9 %, 0         99.1 %, 0
    ninth        66             20   94.2 %, 0.5 %     99.7 %, 0
    tenth        50             18   97.4 %, 0         97.7 %, 0
    eleventh     73             27   90.8 %, 2.3 %     97.5 %, 0
    twelfth      36             14   93.8 %, 1.0 %     95.8 %, 0
    thirteenth   17              5   94.5 %, 0         94.5 %, 0
    fourteenth   51             14   86.0 %, 0.9 %     95.9 %, 0
    fifteenth   106             38   91.3 %, 0.6 %     98.8 %, 0
    sixteenth   107             38   92.1 %, 1.2 %     97.8 %, 0.4 %
    seventeenth 125             36   80.9 %, 1.8 %     91.7 %, 0
    eighteenth   61             18   81.0 %, 1.1 %     91.5 %, 0
    nineteenth   70             19   85.4 %, 2.2 %     92.0 %, 1.9 %
    twentieth    26              9   95.7 %, 1.4 %     not mended
    twenty-first 85             14   87.6 %, 2.2 %     95.4 %, 0.4 %
    twenty-second 37             6   86.3 %, 1.2 %     96.4 %, 0
    twenty-third 53             20   84.5 %, 3.9 %     89.9 %, 1.1 %
    twenty-fourth 13             8   83.3 %, 0         100 %, 0
    twenty-fifth 63             24   85.3 %, 2.7 %     97.9 %, 0
    twenty-sixth 23             10   98.9 %, 1.1 %     100 %, 0
    twenty-seventh 76           38   88.2 %, 2.6 %     90.7 %, 1.5 %
    twenty-eighth 37            12   90.5 %, 2.8 %     96.1 %, 0.6 %
    twenty-ninth 65             31   82.4 %, 4.7 %     93.7 %, 0.3 %
    thirty-first 47             21   84.2 %, 1.6 %     92.8 %, 0
    thirty-second 44            24   88.7 %, 1.9 %     96.1 %, 0
    thirty-third 15              9   93.8 %, 1.5 %     98.4 %, 0
    thirty-sixth 37             14   89.1 %, 4.0 %     98.5 %, 0
    thirty-seventh 15            7   98.8 %, 0         99.4 %, 0
    thirty-eighth 5              5   96.9 %, 0         99.0 %, 0
    thirty-ninth 47             26   84.1 %, 1.9 %     96.9 %, 0
    fortieth     15              9   91.9 %, 1.4 %     99.5 %, 0
    forty-first  38             27   91.8 %, 0.4 %     96.5 %, 0
    forty-second 13             12   90.5 %, 1.9 %     94.2 %, 0

Five of the 15 false values of `unseen` were mistakes of the reader. Twelve of the 17 open facts of `second`
had one cause, a mistake made while fixing the causes from `fresh`; without it, 98.2 % were right at first
sight. `fourth` was read after the causes from `third` had been fixed. In these two parts, two expectations
were changed after the answers had been seen (KeNiu042/judge.sh and astOwOlfo/run_rl.sh), and one false value
in each was such a mistake; so was one of `pacman100/LLM-Workshop`, changed since. `fifth` was chosen for
programs with modules of their own, and read before envcheck followed such modules, `sixth` after.
Eighteen of the 38 open facts of `sixth` had one cause, a script whose only command starts another one. So had
14 of the 23 open facts of `eighth`, which was read after the causes from `seventh` had been fixed.

`ninth` and `tenth` were drawn as the files of users are distributed: by names of files that many repositories
have (`ds_config.json`, `accelerate_config.yaml`, `llama3_lora_sft.yaml`, `train.sh`), and all kinds of files
in each repository. `tenth` was read while the causes from `ninth` were being fixed, and scored once after
that. By kind of file, at first sight:

    kind                               ninth                    tenth
    launch script                      181 of 195 (92.8 %)      144 of 145 (99.3 %)
    launch script, own training loop    10 of  15                14 of  20
    Python program or notebook          52 of  55 (94.5 %)       74 of  76 (97.4 %)
    YAML and JSON                      115 of 115               100 of 100

`eleventh` was drawn by other file names, and with configurations in Python in mind (XTuner, ml_collections),
`twelfth` from the same lists while the causes from `eleventh` were being fixed. Six of the ten false values
of `eleventh` concerned gradient checkpointing: `prepare_model_for_kbit_training` leaves a model that is not
quantised without it, and models of diffusers switch it on by another name. The two of `twelfth` had one
cause, a type of quantisation beside `load_in_4bit: false`. By kind of file, at first sight:

    kind                               eleventh                 twelfth
    launch script                      120 of 135, 6 false      70 of 79, 1 false
    launch script, own training loop    92 of 102, 4 false      11 of 11
    Python program or notebook          88 of  96               50 of 52
    YAML and JSON                       94 of 101               49 of 50, 1 false

Of `fourteenth`, 294 of 342 facts were right at first sight (95 % interval 81.9 to 89.2 %) and three false
(0.3 to 2.5 %). Sixteen of the 45 open facts had one cause: a script that launches two programs, of which
only the second one trains. After the answers had been seen, three expectations got the name of FSDP's own
fact for offloading.

`fifteenth` was drawn by names of files that many repositories have, from 2023 to 2026, and committed before
the first run. Of 722 facts, 659 were right (95 % interval 89.0 to 93.1 %; 86.9 to 95.0 % if whole
repositories are drawn), 59 open and four false (0.2 to 1.4 %). Seven open facts are the `parallel` of a
plain `python` command that names no device, which earlier parts called uncertain. By trainer: none named 79
of 81, accelerate or an own loop 51 of 59, axolotl 19 of 20, LLaMA-Factory 71 of 71, OpenRLHF 43 of 44,
sentence-transformers 2 of 6, transformers 247 of 271, TRL 118 of 141, verl 29 of 29. By kind of file, at
first sight:

    kind                               fifteenth
    launch script                      403 of 435, 2 false
    launch script, own training loop    44 of  51
    Python program or notebook          93 of 111, 1 false
    YAML and JSON                      119 of 125, 1 false

`sixteenth` was drawn likewise, and committed while the causes from `fifteenth` were being fixed. Envcheck
before those causes were fixed had 632 of its 692 facts right (91.3 %), after it 637 (95 % interval 89.8 to
93.8 %; 84.9 to 97.3 % if whole repositories are drawn), with 47 open and eight false (0.6 to 2.3 %). That is
the figure above, although the sample was scored only with one later change. That change gave 39 of the facts
at once, all by three properties of these files (a module below `src`, `command -v uv` around ms-swift,
`use_qlora: false` after `use_lora: true`), so it cannot be called first sight. The fixes for one sample thus
moved the next by less than one point: the causes are many and rarely return. Of the 16 facts that are left,
six belong to a script that trains with one of several programs, by a variable. By trainer, at first sight:
none named 154 of 158 (four false), accelerate or an own loop 27 of 29, axolotl 28 of 29 (one false),
ms-swift 0 of 17, OpenRLHF 20 of 20, torchtune 25 of 27, transformers 206 of 214 (two false), TRL 172 of 193
(one false), verl 5 of 5. By kind of file, at first sight:

    kind                               sixteenth
    launch script                      351 of 399, 3 false
    launch script, own training loop    22 of  24
    Python program or notebook          57 of  58, 1 false
    YAML and JSON                      207 of 211, 4 false

`seventeenth` and `eighteenth` were drawn by names of files (`run_sft.sh`, `train_lora.sh`, `grpo.yaml`,
`train_lora.py`, `train.slurm`, `config/sft.yaml`), by name alone, from 2024 to 2026: of each repository
the file of that name, the first three launch scripts, the first two configurations and the first two
programs by path. Both were committed before the first run of either. Of 726 facts of `seventeenth`, 587
were right (95 % interval 77.8 to 83.6 %; 70.6 to 90.6 % if whole repositories are drawn), 126 open and
13 false (1.0 to 3.0 %). Twenty of the 36 repositories have no miss; five have 88 of the 139. Eleven of
the false values are on programs of TRL: settings of a file that its program ignores, and a trainer that
its options do not prove. After the answers had been seen, 14 open facts became uncertain, mistakes of
the reader: two scripts start a path that does not exist, and in two the two steps differ. Without them,
587 of 712 were right (82.4 %).

`eighteenth` was scored once after the causes from `seventeenth` had begun to be fixed: 307 of 379 right
(95 % interval 76.7 to 84.6 %; 67.5 to 92.5 % if whole repositories are drawn), 68 open and four false
(0.4 to 2.7 %). Envcheck before those fixes had 304 right (80.2 %), with the same four false. The fixes
for one sample thus moved the next by less than one point again. Twenty-four of the open facts belong to
three scripts in which envcheck finds no launch line. By kind of file, at first sight:

    kind                               seventeenth              eighteenth
    launch script                      308 of 402, 7 false      143 of 202, 3 false
    launch script, own training loop    43 of  59, 1 false       32 of  42
    Python program or notebook          51 of  64                32 of  33
    YAML and JSON                      185 of 201, 5 false      100 of 102, 1 false

`nineteenth` was drawn by names of files as `seventeenth`, with jobs of amlt, Kubernetes and Slurm among
them, and committed before the first run. A third of it, `nineteenth-held`, was scored but never looked at:
130 of its 139 facts were right at first sight (93.5 %), two false. Together, 439 of 501 facts were right
(87.6 %; 95 % interval 84.5 to 90.2 %) and ten false. Three of the eight false values of the visible part
are on scripts that train nothing. The facts that are not listed were read too: four more were false
(`resume` of three files that say `resume_from_checkpoint: false`, and a precision that the program does not
pass on). `twentieth` was committed after the causes from `nineteenth` had been fixed outside programs, and
scored once: 132 of 138 facts right (95 % interval 90.8 to 98.0 %), two false, by envcheck before these
fixes as well. Its open and false facts were not looked at. By trainer, at first sight, `nineteenth` and
`twentieth` together: none named 134 of 139 (five false), LLaMA-Factory 38 of 44, ms-swift 20 of 20,
torchtune 12 of 12, transformers 131 of 172 (three false), TRL 80 of 81, verl 12 of 14 (one false),
accelerate or an own loop 14 of 18 (one false).

`twenty-first` was drawn by names of files (`train_sft.sh`, `train_dpo.sh`, `sft.slurm`, `train_fsdp.sh`,
`run_verl_grpo.sh`, `finetune.ipynb`), by name alone, and committed before the first run. A third of its
repositories, `twenty-first-held`, was scored but never looked at: 76 of its 82 facts were right at first
sight (92.7 %), two false. Together, 429 of 490 facts were right (87.6 %; 95 % interval 84.3 to 90.2 %) and 11
false (1.3 to 4.0 %). Six of the nine false values of the visible part are on scripts that train nothing. Of
its 46 open facts, 24 belong to four scripts of one repository, whose program starts verl with a path that it
computes. After the answers had been seen, four expectations got the name of FSDP's own fact for activation
checkpointing. Fixing the causes from the visible part has not changed the figures of the held part.

`twenty-second` was drawn from the same lists, committed after most causes from `twenty-first` had been fixed,
and scored once: 145 of 168 facts right (95 % interval 80.3 to 90.7 %), two false (0.3 to 4.2 %), both on a
script that only generates. Seventeen of its 21 open facts belong to four scripts of one repository, which
start a program by a path that does not exist and give it Hydra's overrides.

`twenty-third` was drawn by names of files (`train_grpo.py`, `train_sft.py`, `train_grpo.sh`, `train_lora.sh`,
`train.slurm`, `configs/grpo.yaml`), by name alone, of 2025 and 2026, and committed before the first run: 239
of 283 facts right (95 % interval 79.8 to 88.2 %), 33 open and 11 false (2.2 to 6.8 %). Its misses were sorted
by what a reader would have needed. Fifteen belong to programs that were not followed to their end: a reward
used up the steps, a condition was wrongly decided, one of two classes was chosen. Thirteen belong to shell
scripts (a text given to tmux, `$(function)`, steps that do not train). In four an adapter is loaded or asked
for by name, in three a trainer of TRL loads the model, in three names of options outweighed the code, in
three checkpointing was switched on or off in the model, and in three a configuration was wrongly taken for
one of a trainer, or its defaults for known.

`twenty-fourth` was committed after most of these causes had been fixed, and scored once: 55 of 66 facts right
(95 % interval 72.6 to 90.4 %), none false (0 to 5.5 %); envcheck before had 53 right. All 11 open facts
belong to programs of two repositories: one merges its YAML files by functions of its own, in the other a
script fits an index for its answers, which counted as a training.

`twenty-fifth` was drawn by names of files (`scripts/train_grpo.sh`, `scripts/run_sft.sh`,
`scripts/train_dpo.py`, `scripts/finetune_lora.sh`, `finetune.py`, `configs/sft_config.yaml`), by name alone,
and written before the first run: 285 of 334 facts right (95 % interval 81.1 to 88.7 %), 40 open and nine
false (1.4 to 5.0 %). Three of the false values were mistakes of the reader, and became uncertain: `auto` for
the device of an offload, which accelerate fills in with `none`, and the quantisation of a remote service.
The other six: a rank of 0 beside other options of LoRA (two), an option on attention that the program does
not pass on (two), profiles that repeat a section, and a section of accelerate's file that `--multi_gpu`
leaves unused. Of the open facts, 13 belong to three scripts that source a file which is not here, ten to a
script that another one writes and a cluster's own command starts, and five to a program with a package that
is installed from a folder of the project.

`twenty-sixth` was drawn from other names (`train_lora.sh`, `run_finetune.sh`, `src/train_grpo.py`) and
written after these causes had been fixed, then scored once: 93 of 94 facts right (95 % interval 94.2 to
99.8 %), one false (0.2 to 5.8 %), a trainer that only the names of a program's own options suggested.
Envcheck before the causes from `twenty-fifth` were fixed had 92 of them right: this sample holds fewer
scripts that start others, so its share does not show what the fixes are worth.

`twenty-seventh` was chosen to be hard, by the names of files and of repositories: scripts with functions,
arrays and loops, scripts that source others, jobs of Slurm, SkyPilot, Kubernetes and Ray, Dockerfiles, a
makefile, programs with fire, Hydra or dataclasses, loops of their own, AMD's GPUs. It was committed before
the first run: 307 of 348 facts right (95 % interval 84.4 to 91.2 %), 32 open and nine false (1.4 to 4.8 %);
one more file ended the program with an error, a number that is infinite. Half of its repositories,
`twenty-seventh-held`, had 146 of 172 right at first sight (78.8 to 89.5 %), seven false. It was scored again
after the causes from the other half had been fixed, with the same answers to all 172: what was found in 19
repositories moved nothing in the other 19. Then it was read too. Of its seven false values two were slime's,
taken for OpenRLHF; four are defaults of a program that is started without options, or of its library, which
the reader had called uncertain; one is a project's own copy of verl. Seventeen of its open facts belong to
four files: a program that starts no known trainer, one that several modes share, a class of the project
around the model, and a script whose last command is text for another shell. After the answers had been seen,
the stage of ZeRO in the file that had ended the program was written down.

`twenty-eighth` is as hard, was committed after these causes had been fixed (all but slime's), and was scored
once: 162 of 179 facts right (95 % interval 85.3 to 94.0 %), 12 open and five false (1.2 to 6.4 %); envcheck
before had the same figures. The answers showed mistakes of the reader: three uncertain facts that envcheck
had right, `quant_bits` of ms-swift, which quantises nothing without `quant_method`, and a program that trains
with FSDP, of which the reader had accepted `ddp` too. With these corrected, 162 of 178 were right and four
false: a script of ms-swift taken for TRL's `sft.py` (two), DDP claimed for a program that gives FSDP to
TrainingArguments, and LoRA in a part that is frozen. The first three had general causes, which were fixed.

`twenty-ninth` is as hard, of 2023 to 2026: GRPO by verl and by loops of their own, TRL, vision-language and
retrieval models, LoRA of diffusion models, Whisper, Megatron-LM in Apptainer, Slurm with Pyxis, a job of
Kubernetes, notebooks, jsonnet. It was committed before the first run: 263 of 319 facts right (95 % interval
77.9 to 86.2 %), 41 open and 15 false (2.9 to 7.6 %). Half of the false values were mistakes of the reader,
who had written `?` alone where one value was right or likely: text encoders that stay frozen, DDP, Megatron,
the trainer of two YAML files, and checkpointing that TRL before 0.7.2 switches on. One program stops at its
own check of its file, which the reader had not seen. With these corrected, 261 of 307 were right (85.0 %;
80.6 to 88.6 %) and seven false (1.1 to 4.6 %): no adapter where a program defines layers of LoRA itself
(two), transformers' Trainer for loops of their own with its options (two), ms-swift for Megatron-LM (two),
and layers in `checkpoint_wrapper`. All but one of these are fixed: a program that is not here is still judged
by the names of its options. Of the 18 facts that are open, five belong to jsonnet and two to a notebook that
trains twice. The answers to all 728 facts of 37 repositories of earlier parts stayed as they were.

`thirty-first` was drawn by names of files again (`scripts/train_sft.sh`, `configs/sft.yaml`, `run_grpo.sh`,
`train_qlora.py`, `train_unsloth.py`), from lists in which no file was chosen for its difficulty, of 2025 and
2026, and its hash was taken before the first run. More kinds of facts are expected than in earlier parts. Of
558 facts, 470 were right (95 % interval 81.0 to 87.0 %), 79 open and nine false (0.9 to 3.0 %). Twenty-four
open facts had one cause: no dialect stated the steps between checkpoints and evaluations. The false ones:
modules that Unsloth trains beside the adapter (three), the second word after `--lora_target_modules` (two), a
name of an option for which the code loads another attention, the model of a file that an override replaces,
code of the model that further arguments allow, and TRL's file taken for transformers' Trainer. After the
answers had been seen, the checkpointing of two trainings by verl became uncertain: its release decides it.
Twelve of the 40 facts that are left open belong to a notebook that starts a project's own command. In 54
repositories of earlier parts, some at a later commit, the fixes changed answers to 17 of 149 files: settings
that are changed after they were made, models that overrides name, a loop that was said to be verl. Of 858
facts there, six were false before and four after; 37 were open before and 40 after.

`thirty-second` was drawn by names of files (`scripts/finetune.sh`, `scripts/train_grpo.sh`, `train_lora.py`,
`scripts/zero3.json`, `scripts/run_dpo.sh`, `scripts/train_unsloth.py`, `configs/accelerate_zero2.yaml`, and
some that few repositories have), at intervals of the lists, of 2024 to 2026; repositories without a training
of a language or diffusion model were passed over. Its lines were hashed and committed before the first run.
Of 575 facts, 510 were right (95 % interval 85.8 to 91.0 %), 54 open and 11 false (1.1 to 3.4 %). Seven of the
false values were mistakes of the reader: optimizers and a schedule that DeepSpeed's JSON names itself (five),
a list that the table cannot hold, and a model that computes in the half precision it is loaded in. One open
fact depends on the GPU. With these corrected, 514 of 571 were right (90.0 %; 87.3 to 92.2 %) and four false
(0.3 to 1.8 %): the trainer that options of a program suggested which does not use accelerate, code of the
model that its configuration allows, and two defaults of a trainer whose arguments are made by a class that
was not recognised. Fifteen open facts have one cause, a script that lets a program in a here-document turn
its YAML into arguments. The others: what a loop clips, packing (four each), an array that is expanded by
`${A[@]+"${A[@]}"}` (five), arguments of two classes in one program (five), verl's engine and number of
processes.

`thirty-third` was drawn likewise from other lists (`scripts/train_dpo.sh`, `scripts/run_sft.py`), after these
causes had been fixed, and scored once: 183 of 195 facts right (95 % interval 89.6 to 96.4 %), nine open and
three false (0.5 to 4.4 %). Six of the twelve were mistakes of the reader: a script names a file that does not
exist (five), and a schedule of DeepSpeed's JSON. With these corrected, 184 of 190 were right (96.8 %; 93.3 to
98.5 %) and two false: a length that argparse takes by the beginning of its option, and float32 for
`fp16=False` of TRL. Envcheck before the causes from `thirty-second` had been fixed had 181 of them right,
with three false.

In 59 repositories of earlier parts, some at a later commit, these fixes changed what is given for 79 of 150
files, mostly facts that no part expected: no packing, whether the model's own code runs (no longer known
where no program was read), processes of verl. Of their 1,101 facts, 1,041 were right before and 1,049 after,
52 were open before and 45 after, eight were false before and six after; none became false.

`thirty-fourth` was drawn by names of files again (`scripts/sft.sh`, `scripts/finetune_lora.py`,
`scripts/train_qwen.sh`, `configs/grpo_config.yaml`, `configs/fsdp_config.yaml`, NeMo RL's example, and
others), at intervals of the lists; repositories without a training of a language model were passed over,
and some could not be had. Its lines were hashed and committed before the first run. Of 585 facts, 472 were
right (95 % interval 77.3 to 83.7 %), 102 open and 11 false (1.1 to 3.3 %). Eleven facts were mistakes of
the reader: a name of DeepSpeed's that counts in both spellings (two), steps that a class of the project
sets to 1, Unsloth's default for code of the model, what a program computes in without autocast (three),
trackers that are not the Trainer's (two), and a clipping that DeepSpeed's file leaves out, in two scripts.
With these corrected, 475 of 578 were right (82.2 %; 78.9 to 85.1 %) and five false (0.4 to 2.0 %): a length
given by the beginning of an option of a parser of dataclasses (three), a head that Unsloth trains as a
whole, and attention by the name of an option. Most open facts had few causes: arguments that a function of
the script prints (32), a folder of the cluster with the user's name (18), NeMo RL's way of submitting a job
(16), a function that Ray calls in its workers (11), a class of settings whose attributes are set in a loop
(seven). Reading axolotl for its steps showed that `load_in_4bit` beside plain LoRA is no NF4, and Slurm's
drivers of verl counted as one process; no part expected either.

`thirty-fifth` was drawn likewise, and committed before the first run, after these causes had been fixed:
237 of 247 facts right (95 % interval 92.7 to 97.8 %), seven open and three false (0.4 to 3.5 %). Envcheck
before had the same 237 right and the same three false: what was found in 20 repositories moved nothing in
the next 13, and the difference of the two parts is that of their files. Two of the ten were mistakes of the
reader. Left are packing by an option that the code does not use (false), LLaVA's frozen tower, and a
quantisation beside a project's own copy of PEFT. By kind of file, at first sight, with mistakes of the
reader corrected:

    kind                               thirty-fourth            thirty-fifth
    launch script                      266 of 347, 4 false       79 of  86, 1 false
    Python program or notebook         130 of 144, 1 false       94 of  94
    YAML and JSON                       79 of  87                64 of  65, 1 false

In 16 repositories of earlier parts, some at a later commit, these fixes changed what is given for four of
58 files: processes of verl under Slurm, and code of the model that TRL does not trust by default. None of
their 409 facts changed: 401 were right, eight open.

`thirty-sixth` was drawn by names of files again (`scripts/train_grpo.sh`, `training/train_sft.py`,
`configs/llamafactory_sft.yaml`, `configs/accelerate_fsdp2.yaml`, `finetune_unsloth.ipynb`, and others), of
2024 to 2026; many repositories of these lists could not be had or were seen before. None of these files is
for axolotl, torchtune, ms-swift or NeMo RL. Its lines were hashed and committed before the first run, after
scripts had been read for the files that they write piece by piece, which changed no fact here. Of 506
facts, 451 were right (95 % interval 86.1 to 91.6 %), 35 open and 20 false (2.6 to 6.0 %). The reader had
made 33 mistakes: `none` for no tracker, a value that the fact does not have (13), `?` alone where a value
was right or likely (17), a model that does not exist, and verl's steps between checkpoints, which are not
those of its optimizer (two). With these corrected, 457 of 479 were right (95.4 %; 93.1 to 96.9 %) and three
false (0.2 to 1.8 %): attention and type of a model that TRL loads by its name without them (two), and a
checkpoint that the trainer is not given. Of the open facts, seven belong to a program that plays a game
before it trains, four to arguments made of the parsed ones, and three to a file that is not here.

`thirty-seventh` was drawn likewise, and committed before the first run, after these causes had been fixed:
162 of 164 facts right (95 % interval 95.7 to 99.7 %), two open and none false (0 to 2.3 %). Envcheck before
had 152 right (92.7 %; 87.6 to 95.8 %), 12 open and none false. All ten facts that the fixes gave belong to
one program, which probes its model before it trains and was too long to be followed: a function that leads
to no training is now followed a short way. By kind of file, at first sight, with mistakes of the reader
corrected:

    kind                               thirty-sixth             thirty-seventh
    launch script                      168 of 180, 3 false       93 of  94
    Python program or notebook         171 of 181                38 of  39
    YAML and JSON                      118 of 118                31 of  31

`thirty-eighth` adds trainers that these lack: four files of axolotl and one of ms-swift, each at the commit
that a search gave (that of unolop/HPA is not in its snapshot). It was committed before the first run: 94 of
97 facts right (95 % interval 91.3 to 98.9 %), three open and none false. Two of the three are the tracker
that a project for it switches on.

In 49 repositories of earlier parts, some at a later commit, these fixes changed what is given for six of 116
files. Of their 1,229 facts, 1,202 were right before and 1,207 after, 26 were open before and 21 after, and
one was false; the five belong to one long program.

`thirty-ninth` was drawn for kinds that had few files or none: torchtune in jobs of Slurm and in scripts that
rewrite its recipes with sed, Megatron of ms-swift, axolotl of 2026 and from Python, NeMo RL, verl, OpenRLHF,
diffusers' scripts for LoRA, sentence-transformers, pipelines of DeepSpeed, loops on FSDP and Fabric, jobs of
Kubernetes. (The files of ideallove/LLaMA-Factory are in its history only.) Its lines were hashed and
committed before the first run. Of 686 facts, 577 were right (95 % interval 81.2 to 86.7 %), 96 open and 13
false (1.1 to 3.2 %). The reader had made ten mistakes: `?` alone where a value was right (seven), and no
processes for `accelerate launch` without a configuration, which may use one of its user (three). With these
corrected, 577 of 676 were right (85.4 %; 82.5 to 87.8 %) and six false (0.4 to 1.9 %): a checkpoint that is
dequantised as it is loaded, a program that gives axolotl its options in a dictionary, `autocast` around a
validation, FSDP only for several processes, recomputed layers that a library makes objects of, and attention
that a program sets on a model it has loaded. Of the open facts, 39 belong to axolotl, 19 to
loops of their own, 12 to scripts on accelerate and nine to Megatron of ms-swift. Most of what is left open is
that of the loops: batch sizes in options of their own, or in a file that only the command line names.

`fortieth` was drawn likewise, and committed before its first run, after these causes had been fixed: 194 of
211 facts right (95 % interval 87.5 to 94.9 %), 14 open and three false (0.5 to 4.1 %). Two of the false were
mistakes of the reader in how a list of trackers is written; with them corrected 196 were right (92.9 %; 88.6
to 95.6 %) and one false, a length that a program shortens on small GPUs. Envcheck before had the same: the
fixes gave none of these facts. Eight of the 14 belong to a program that `python -c` reads and executes. By
kind of file, at first sight, with mistakes of the reader corrected:

    kind                               thirty-ninth             fortieth
    launch script                      359 of 437, 6 false      139 of 153
    Python program or notebook          50 of  63                42 of  42
    YAML and JSON                      168 of 176                15 of  16, 1 false

Of `fsdp_wrap`, two facts of `thirty-ninth` count as open although envcheck states no such fact on purpose.
In 100 repositories of earlier parts, some at a later commit, these fixes changed what is given for five of
321 files. Of their 2,780 facts, 2,731 were right before and 2,732 after, 46 were open before and 45 after,
and three were false. Two more files made envcheck fail: a function of another script used its own script's
here-document. They are read now.

`forty-first` was drawn by names of files (`src/finetune_lora.py`, `configs/train_lora.yaml`,
`slurm/train.slurm`, `training/train_dpo.py`, `train_accelerate.py`, `configs/deepspeed_zero2.json`,
`scripts/train_ddp.sh`) and of repositories (of torchtune, verl, Unsloth, LLaMA-Factory and ms-swift), of
which many could not be had or were seen before. Its lines were hashed and committed before the first run: 472
of 514 facts right (95 % interval 89.1 to 93.9 %), 40 open and two false (0.1 to 1.4 %). The false ones: a
program of MLX, whose classes have the names of PEFT's, and a section that switches checkpointing off where
another section switches it on. Envcheck before the open classes of `thirty-ninth` and `fortieth` had been
fixed had the same 472 right: what was left open in 35 repositories moved nothing in these 27. Of the open
facts, 11 belong to a notebook whose cell writes a YAML file, 15 to three loops of their own, four to a
program on accelerate, four to ranks and dropouts of an adapter, two to the quantisation in a section on the
adapter, and two to the accumulation that TRL leaves at 1.

`forty-second` was drawn likewise and committed before its first run, after most of these causes had been
fixed: 143 of 158 facts right (95 % interval 84.9 to 94.2 %), 12 open and three false (0.6 to 5.4 %). Envcheck
before the fixes for both parts had 141 right and the same three false: no quantisation, in a file that says
nothing of it while its program loads the model in 4 bits; a reference model frozen by its class; and PPO for
an estimator of verl's own. All three had general causes, which were fixed. Six of the open facts belong to a
program that makes its model itself, three to an adapter that Unsloth loads. By kind of file, at first sight:

    kind                               forty-first              forty-second
    launch script                      182 of 193                10 of  11, 1 false
    Python program or notebook         200 of 228, 1 false       74 of  86, 1 false
    YAML and JSON                       90 of  93, 1 false       59 of  61, 1 false

In 47 repositories of earlier parts these fixes changed what is given for 14 of 88 files. Of their 1,018
facts, 980 were right before and 994 after, 37 were open before and 23 after, and one was false; none became
false.

In `ninth`, two expectations became uncertain after the answers had been seen: the release of verl decides
what `fsdp_sft_trainer` uses (ChenmienTan/LIMO). These files are no longer unseen, so the next measurement
needs files of other repositories.

Of the 7,178 facts of the first thirteen parts, scored before the causes from `fourteenth` were fixed, 98.7
% are right (7,086), 92 are open and none is false. By trainer: none named 1,035 of 1,045, accelerate 246 of
253, axolotl 176 of 176, a program's own loop 334 of 366, LLaMA-Factory 491 of 493, NeMo RL 66 of 66,
OpenRLHF 347 of 348, sentence-transformers 3 of 3, ms-swift 297 of 299, torchtune 121 of 121, transformers
2,832 of 2,851, TRL 764 of 775, verl 271 of 273. The slowest file takes 0.4 s of CPU time, 0.5 s while other
work runs. What is open depends mostly on a program's own code: its own registries, options that its own
parser reads, and files that are not here.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from envcheck.commands import loading, training_files  # noqa: E402 - the path comes first
from envcheck.core.errors import EnvcheckError  # noqa: E402
from envcheck.core.facts import Inventory  # noqa: E402
from envcheck.core.rules import Matrix  # noqa: E402
from envcheck.rules import derive  # noqa: E402

TABLE = Path(__file__).with_suffix(".tsv")
OPEN = "?"


class ExpectedFile(NamedTuple):
    """A row of the table."""

    repository: str
    commit: str
    path: str
    folder: str
    part: str
    facts: Mapping[str, frozenset[str]]


class Answer(NamedTuple):
    """The answer of envcheck to one fact.

    `outcome` is right, open (no value given), false, or uncounted (the reader was not certain).
    """

    row: ExpectedFile
    key: str
    expected: frozenset[str]
    given: str
    outcome: str


def expected_files() -> Iterator[ExpectedFile]:
    """Yield the rows of the table."""
    lines = TABLE.read_text().splitlines()
    for line in lines[1:]:
        *fields, facts = line.split("\t")
        pairs = (pair.partition("=") for pair in facts.split())
        repository, commit, path, folder, part = fields
        expected = {key: frozenset(values.split("|")) for key, _, values in pairs}
        yield ExpectedFile(repository, commit, path, folder, part, expected)


def facts_of(row: ExpectedFile, root: Path, matrix: Matrix) -> tuple[dict[str, str], str, float]:
    """Return the facts that envcheck reads and derives, the error if it refuses the file, and CPU seconds."""
    os.chdir(root / row.repository.replace("/", "+") / row.folder)
    name = os.path.relpath(root / row.repository.replace("/", "+") / row.path)
    gc.collect()
    gc.disable()  # as the command does
    start = time.process_time()
    try:
        read = training_files.configured([name], matrix.tables.get("argument", []), {})
    except EnvcheckError as error:
        return {}, str(error), time.process_time() - start
    finally:
        gc.enable()
    seconds = time.process_time() - start
    derived = derive.derive(Inventory().with_facts(read.facts), matrix)
    known = {key: str(fact.value).lower() for key, fact in derived.facts.items() if fact.value is not None}
    return known, "", seconds


def answers(row: ExpectedFile, facts: Mapping[str, str]) -> Iterator[Answer]:
    """Yield the answer to each fact of a row."""
    for key, expected in row.facts.items():
        given = facts.get(f"train.{key}", "")
        if given in expected:
            outcome = "uncounted" if OPEN in expected else "right"
        elif given:
            outcome = "false"
        else:
            outcome = "uncounted" if OPEN in expected else "open"
        yield Answer(row, key, expected, given, outcome)


def share(counts: Mapping[str, int]) -> str:
    """Return the counts of outcomes as a line."""
    total = counts["right"] + counts["open"] + counts["false"]
    right, wrong = (100 * counts[outcome] / max(total, 1) for outcome in ("right", "false"))
    shares = f"{counts['right']:5} of {total:5} right ({right:5.1f} %), {counts['open']:3} open"
    return f"{shares}, {counts['false']:2} false ({wrong:.1f} %)"


def groups_of(row: ExpectedFile, found: Sequence[Answer]) -> Iterator[tuple[str, Answer]]:
    """Yield each answer under the groups that it is counted in."""
    trainer = min(row.facts.get("trainer", frozenset()) - {OPEN}, default="(none named)")
    for answer in found:
        for group in ("all", row.part, f"trainer {trainer}", f"fact {answer.key}"):
            yield group, answer


def print_wrong(row: ExpectedFile, error: str, found: Sequence[Answer]) -> None:
    """Print the facts of a file that are open or false, and the error if envcheck refused the file."""
    wrong = [answer for answer in found if answer.outcome in ("open", "false")]
    if wrong or error:
        print(f"{row.repository} {row.path} {error[:150]}")
    for answer in wrong:
        expected = "|".join(sorted(answer.expected))
        print(f"    {answer.outcome:5} {answer.key}: {expected}, given {answer.given or '-'}")


def main() -> int:
    """Score the files of a folder and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", help="score the files of one part only, such as `held`")
    parser.add_argument("--wrong", action="store_true", help="list what is open or false")
    options = parser.parse_args()
    root = options.folder.resolve()
    matrix = loading.knowledge()
    groups: dict[str, Counter[str]] = {}
    slowest = 0.0
    missing: set[str] = set()
    for row in expected_files():
        if options.part not in (None, row.part):
            continue
        if not (root / row.repository.replace("/", "+")).is_dir():
            missing.add(row.repository)
            continue
        facts, error, seconds = facts_of(row, root, matrix)
        slowest = max(slowest, seconds)
        found = list(answers(row, facts))
        for group, answer in groups_of(row, found):
            groups.setdefault(group, Counter())[answer.outcome] += 1
        if options.wrong:
            print_wrong(row, error, found)
    for group in sorted(groups, key=lambda name: (" " in name, name)):
        print(f"{group:32} {share(groups[group])}")
    if missing:
        print(f"not scored: {len(missing)} repositories are not in {root}")
    print(f"slowest file: {slowest:.2f} s of CPU time")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
