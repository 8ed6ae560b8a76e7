/*
 * A stand-in for NVIDIA's libnvidia-ml.so.1: the calls the driver probe makes, answered from a text file.
 *
 * The file is named by the environment variable FAKE_NVML:
 *
 *     # what holds for the machine comes first
 *     driver = 550.54.15
 *     nvml = 12.550.54.15
 *     cuda = 12040
 *     [gpu]                       # then one section for each GPU, or for `copies` equal ones
 *     copies = 8
 *     name = NVIDIA A100-SXM4-80GB
 *     memory = 85899345920        # bytes
 *     capability = 8.0
 *
 * Misbehaviour is one line naming the call, before the first section for every GPU, inside for that GPU:
 *
 *     fail nvmlDeviceGetMemoryInfo = 3      return this code
 *     delay nvmlDeviceGetName = 1500        answer after so many milliseconds
 *     hang = nvmlDeviceGetName              never answer
 *     crash = nvmlDeviceGetName             die of a segmentation fault
 *     abort = nvmlDeviceGetName             die of abort()
 *     exit nvmlDeviceGetName = 3            end the process with this code
 *     garbage = nvmlDeviceGetEccMode        fill what is given back with 0xA5
 *
 * A call that is made twice with other arguments is told apart by them: nvmlDeviceGetTotalEccErrors:1 is
 * the aggregate counter, nvmlDeviceGetMemoryInfo:slice that of a MIG device.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define TEXT 256
#define MAX_GPUS 256
#define MAX_TROUBLES 1024
#define MAX_MIG 8

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, ANOTHER_STRUCT = 25 };

/* --- the scenario ------------------------------------------------------------------------------ */

typedef struct {
    char name[TEXT], uuid[TEXT];
    unsigned long long memory, memory_free;
    int has_memory_free;
    int major, minor;
    unsigned mig, mig_pending, mig_instances; /* mig: 0 off, 1 on */
    int has_mig;
    unsigned compute_mode;
    int has_ecc;
    unsigned ecc, ecc_pending;
    unsigned long long ecc_errors[2]; /* volatile, aggregate; uncorrectable */
    int has_rows;
    unsigned remap_pending, remap_failed;
    int recovery; /* -1: the driver knows no such field */
    int has_fabric;
    unsigned fabric_state, fabric_status, fabric_mask, fabric_summary;
    unsigned persistence;
    unsigned virtualization, licensed;
    unsigned long long slice_memory; /* of each MIG instance, bytes */
    char slices[MAX_MIG]; /* only their addresses are used: the handles of MIG instances */
} Gpu;

typedef struct {
    char verb[16], call[TEXT];
    long number;
    int first, last; /* the GPUs concerned; first is -1 for any, and for calls of no GPU */
} Trouble;

static struct {
    char driver[TEXT], nvml[TEXT];
    int cuda;
    unsigned count;
    int has_count;
    int chatty;
    unsigned fabric_version; /* newest version of the fabric struct this driver knows */
} machine = {"550.54.15", "12.550.54.15", 12040, 0, 0, 0, 3};

static Gpu gpus[MAX_GPUS];
static int gpu_count;
static Trouble troubles[MAX_TROUBLES];
static int trouble_count;
static int initialised;

static void complain(const char *problem, const char *detail) {
    fprintf(stderr, "fake_nvml: %s: %s\n", problem, detail);
    _exit(64);
}

static char *trimmed(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1])) end--;
    *end = 0;
    return text;
}

/* Copies text, turning \xNN into the byte it stands for: names no text file could hold. */
static void unescape(char *to, const char *from) {
    char *end = to + TEXT - 1;
    while (*from && to < end) {
        unsigned byte;
        if (from[0] == '\\' && from[1] == 'x' && sscanf(from + 2, "%2x", &byte) == 1) {
            *to++ = (char)byte;
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = 0;
}

static Gpu *new_gpu(void) {
    if (gpu_count == MAX_GPUS) complain("too many GPUs", "");
    Gpu *gpu = &gpus[gpu_count++];
    memset(gpu, 0, sizeof *gpu);
    snprintf(gpu->name, TEXT, "NVIDIA A100-SXM4-80GB");
    gpu->memory = 85899345920ULL;
    gpu->major = 8;
    gpu->recovery = -1;
    gpu->persistence = 1;
    return gpu;
}

static void add_trouble(const char *verb, const char *call, long number, int gpu) {
    if (trouble_count == MAX_TROUBLES) complain("too many troubles", call);
    Trouble *trouble = &troubles[trouble_count++];
    snprintf(trouble->verb, sizeof trouble->verb, "%s", verb);
    snprintf(trouble->call, TEXT, "%s", call);
    trouble->number = number;
    trouble->first = trouble->last = gpu;
}

/* `fail|delay|exit CALL = NUMBER`, `hang|crash|abort|garbage = CALL`; false if the line is none of these. */
static int read_trouble(const char *key, const char *value, int gpu) {
    if (!strncmp(key, "fail ", 5) || !strncmp(key, "delay ", 6) || !strncmp(key, "exit ", 5)) {
        const char *space = strchr(key, ' ');
        char verb[16];
        snprintf(verb, sizeof verb, "%.*s", (int)(space - key), key);
        add_trouble(verb, space + 1, atol(value), gpu);
        return 1;
    }
    if (!strcmp(key, "hang") || !strcmp(key, "crash") || !strcmp(key, "abort") || !strcmp(key, "garbage")) {
        add_trouble(key, value, 0, gpu);
        return 1;
    }
    return 0;
}

static int read_machine(const char *key, const char *value) {
    if (!strcmp(key, "driver")) unescape(machine.driver, value);
    else if (!strcmp(key, "nvml")) unescape(machine.nvml, value);
    else if (!strcmp(key, "cuda")) machine.cuda = atoi(value);
    else if (!strcmp(key, "chatty")) machine.chatty = atoi(value);
    else if (!strcmp(key, "fabric_version")) machine.fabric_version = (unsigned)atoi(value);
    else if (!strcmp(key, "count")) {
        machine.count = (unsigned)strtoul(value, NULL, 10);
        machine.has_count = 1;
    } else return 0;
    return 1;
}

static int read_gpu(Gpu *gpu, const char *key, const char *value) {
    if (!strcmp(key, "name")) unescape(gpu->name, value);
    else if (!strcmp(key, "uuid")) unescape(gpu->uuid, value);
    else if (!strcmp(key, "memory")) gpu->memory = strtoull(value, NULL, 10);
    else if (!strcmp(key, "memory_free")) {
        gpu->memory_free = strtoull(value, NULL, 10);
        gpu->has_memory_free = 1;
    } else if (!strcmp(key, "capability")) sscanf(value, "%d.%d", &gpu->major, &gpu->minor);
    else if (!strcmp(key, "mig")) {
        gpu->mig = gpu->mig_pending = (unsigned)atoi(value);
        gpu->has_mig = 1;
    } else if (!strcmp(key, "mig_pending")) gpu->mig_pending = (unsigned)atoi(value);
    else if (!strcmp(key, "mig_instances")) gpu->mig_instances = (unsigned)atoi(value);
    else if (!strcmp(key, "compute_mode")) gpu->compute_mode = (unsigned)atoi(value);
    else if (!strcmp(key, "slice_memory")) gpu->slice_memory = strtoull(value, NULL, 10);
    else if (!strcmp(key, "ecc")) {
        gpu->ecc = gpu->ecc_pending = (unsigned)atoi(value);
        gpu->has_ecc = 1;
    } else if (!strcmp(key, "ecc_pending")) gpu->ecc_pending = (unsigned)atoi(value);
    else if (!strcmp(key, "ecc_volatile")) gpu->ecc_errors[0] = strtoull(value, NULL, 10);
    else if (!strcmp(key, "ecc_aggregate")) gpu->ecc_errors[1] = strtoull(value, NULL, 10);
    else if (!strcmp(key, "remap_pending")) {
        gpu->remap_pending = (unsigned)atoi(value);
        gpu->has_rows = 1;
    } else if (!strcmp(key, "remap_failed")) {
        gpu->remap_failed = (unsigned)atoi(value);
        gpu->has_rows = 1;
    } else if (!strcmp(key, "recovery")) gpu->recovery = atoi(value);
    else if (!strcmp(key, "fabric_state")) {
        gpu->fabric_state = (unsigned)atoi(value);
        gpu->has_fabric = 1;
    } else if (!strcmp(key, "fabric_status")) gpu->fabric_status = (unsigned)atoi(value);
    else if (!strcmp(key, "fabric_mask")) gpu->fabric_mask = (unsigned)strtoul(value, NULL, 0);
    else if (!strcmp(key, "fabric_summary")) gpu->fabric_summary = (unsigned)atoi(value);
    else if (!strcmp(key, "persistence")) gpu->persistence = (unsigned)atoi(value);
    else if (!strcmp(key, "virtualization")) gpu->virtualization = (unsigned)atoi(value);
    else if (!strcmp(key, "licensed")) gpu->licensed = (unsigned)atoi(value);
    else return 0;
    return 1;
}

/* Repeats the last GPU and makes its troubles those of all its copies. */
static void copy_gpu(int copies) {
    int original = gpu_count - 1;
    for (int i = 1; i < copies; i++) {
        Gpu *copy = new_gpu();
        *copy = gpus[original];
    }
    for (int i = 0; i < trouble_count; i++)
        if (troubles[i].first == original) troubles[i].last = gpu_count - 1;
}

__attribute__((constructor)) static void read_scenario(void) {
    const char *path = getenv("FAKE_NVML");
    if (!path) return;
    FILE *file = fopen(path, "r");
    if (!file) complain("cannot read", path);
    char raw[1024];
    Gpu *gpu = NULL;
    int copies = 1;
    while (fgets(raw, sizeof raw, file)) {
        char *hash = strchr(raw, '#');
        if (hash) *hash = 0;
        char *line = trimmed(raw);
        if (!*line) continue;
        if (!strcmp(line, "[gpu]")) {
            if (gpu) copy_gpu(copies);
            gpu = new_gpu();
            copies = 1;
            continue;
        }
        char *equals = strchr(line, '=');
        if (!equals) complain("expected key = value", line);
        *equals = 0;
        char *key = trimmed(line), *value = trimmed(equals + 1);
        if (read_trouble(key, value, gpu ? gpu_count - 1 : -1)) continue;
        if (gpu && !strcmp(key, "copies")) copies = atoi(value);
        else if (!(gpu ? read_gpu(gpu, key, value) : read_machine(key, value))) complain("unknown key", key);
    }
    if (gpu) copy_gpu(copies);
    fclose(file);
    for (int i = 0; i < gpu_count; i++)
        if (!gpus[i].uuid[0]) snprintf(gpus[i].uuid, TEXT, "GPU-%08x-0000-4000-8000-000000000000", 0xfa4e0000u + i);
}

/* --- what every call does first ---------------------------------------------------------------- */

static void die(int by) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(by, SIG_DFL);
    raise(by);
}

/* A call is named in the scenario by itself, or with its argument after a colon. */
static int is_named(const char *named, const char *call, const char *argument) {
    size_t length = strlen(call);
    if (strncmp(named, call, length)) return 0;
    return !named[length] || (argument && named[length] == ':' && !strcmp(named + length + 1, argument));
}

#define GARBAGE -1

/* Does what the scenario has in store for this call on this GPU (-1: no GPU); the code to return. */
static int enter(const char *call, const char *argument, int gpu) {
    for (int i = 0; i < trouble_count; i++) {
        const Trouble *trouble = &troubles[i];
        if (!is_named(trouble->call, call, argument)) continue;
        if (trouble->first >= 0 && (gpu < trouble->first || gpu > trouble->last)) continue;
        if (!strcmp(trouble->verb, "fail")) return (int)trouble->number;
        if (!strcmp(trouble->verb, "garbage")) return GARBAGE;
        if (!strcmp(trouble->verb, "exit")) _exit((int)trouble->number);
        if (!strcmp(trouble->verb, "delay")) usleep((useconds_t)(trouble->number * 1000));
        if (!strcmp(trouble->verb, "crash")) die(SIGSEGV);
        if (!strcmp(trouble->verb, "abort")) die(SIGABRT);
        while (!strcmp(trouble->verb, "hang")) pause();
    }
    return OK;
}

static int index_of(const void *device) {
    for (int i = 0; i < gpu_count; i++)
        if ((const char *)device >= (const char *)&gpus[i] && (const char *)device < (const char *)&gpus[i + 1])
            return i;
    return -1;
}

static int enter_of(const char *call, const char *argument, const void *device) {
    if (!initialised) return UNINITIALIZED;
    int gpu = index_of(device);
    return gpu < 0 ? INVALID : enter(call, argument, gpu);
}

static int give_text(const char *text, char *to, unsigned size) {
    if (strlen(text) + 1 > size) return TOO_SMALL;
    strcpy(to, text);
    return OK;
}

/* Nothing of what a caller gets back is sense; text is closed, as the caller would run on otherwise. */
static int give_garbage(void *to, size_t size, int is_text) {
    memset(to, 0xA5, size);
    if (is_text) ((char *)to)[size - 1] = 0;
    return OK;
}

#define ENTERED(code_, to, size, is_text)                                   \
    do {                                                                    \
        int entered_ = (code_);                                             \
        if (entered_ == GARBAGE) return give_garbage(to, size, is_text);    \
        if (entered_ != OK) return entered_;                                \
    } while (0)

#define ENTER(gpu, to, size) ENTERED(enter(__func__, NULL, gpu), to, size, 0)
#define ENTER_TEXT(to, size) ENTERED(enter(__func__, NULL, -1), to, size, 1)
#define ENTER_OF(device, to, size) ENTERED(enter_of(__func__, NULL, device), to, size, 0)
#define ENTER_TEXT_OF(device, to, size) ENTERED(enter_of(__func__, NULL, device), to, size, 1)

/* --- the library ------------------------------------------------------------------------------- */

PUBLIC int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (machine.chatty) {
        printf("[\"answer\", null, \"nvmlDeviceGetCount\", 3]\n\xff noise\n");
        fflush(stdout);
    }
    int code = enter(__func__, NULL, -1);
    if (code != OK && code != GARBAGE) return code;
    initialised = 1;
    return OK;
}

/* As the real one, this answers although initialising failed. */
PUBLIC int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    ENTER_TEXT(version, size);
    return give_text(machine.nvml, version, size);
}

PUBLIC int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    if (!initialised) return UNINITIALIZED;
    ENTER_TEXT(version, size);
    return give_text(machine.driver, version, size);
}

PUBLIC int nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER(-1, version, sizeof *version);
    *version = machine.cuda;
    return OK;
}

PUBLIC int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER(-1, version, sizeof *version);
    *version = machine.cuda;
    return OK;
}

PUBLIC int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!initialised) return UNINITIALIZED;
    ENTER(-1, count, sizeof *count);
    *count = machine.has_count ? machine.count : (unsigned)gpu_count;
    return OK;
}

PUBLIC int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (!initialised) return UNINITIALIZED;
    if (index >= (unsigned)gpu_count) return INVALID;
    int code = enter(__func__, NULL, (int)index);
    if (code != OK) return code == GARBAGE ? give_garbage(device, sizeof *device, 0) : code;
    *device = &gpus[index];
    return OK;
}

PUBLIC int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    ENTER_TEXT_OF(device, name, size);
    return give_text(((Gpu *)device)->name, name, size);
}

PUBLIC int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    ENTER_TEXT_OF(device, uuid, size);
    return give_text(((Gpu *)device)->uuid, uuid, size);
}

typedef struct {
    unsigned long long total, free, used; /* bytes */
} Memory;

PUBLIC int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    const Gpu *gpu = &gpus[index_of(device) < 0 ? 0 : index_of(device)];
    int is_slice = device != gpu;
    ENTERED(enter_of(__func__, is_slice ? "slice" : "card", device), memory, sizeof *memory, 0);
    memory->total = is_slice ? gpu->slice_memory : gpu->memory;
    memory->free = !is_slice && gpu->has_memory_free ? gpu->memory_free : memory->total;
    memory->used = memory->total - memory->free;
    return OK;
}

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used; /* bytes */
} MemoryV2;

PUBLIC int nvmlDeviceGetMemoryInfo_v2(void *device, MemoryV2 *memory) {
    ENTER_OF(device, memory, sizeof *memory);
    if (memory->version != (sizeof *memory | 2u << 24)) return ANOTHER_STRUCT;
    const Gpu *gpu = device;
    memory->total = gpu->memory;
    memory->free = gpu->has_memory_free ? gpu->memory_free : gpu->memory;
    return OK;
}

PUBLIC int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    ENTERED(enter_of(__func__, NULL, device), major, sizeof *major, 0);
    *major = ((Gpu *)device)->major;
    *minor = ((Gpu *)device)->minor;
    return OK;
}

PUBLIC int nvmlDeviceGetComputeMode(void *device, unsigned *mode) {
    ENTER_OF(device, mode, sizeof *mode);
    *mode = ((Gpu *)device)->compute_mode;
    return OK;
}

PUBLIC int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    ENTER_OF(device, current, sizeof *current);
    const Gpu *gpu = device;
    if (!gpu->has_mig) return NOT_SUPPORTED;
    *current = gpu->mig;
    *pending = gpu->mig_pending;
    return OK;
}

PUBLIC int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    ENTER_OF(device, count, sizeof *count);
    *count = ((Gpu *)device)->has_mig ? MAX_MIG - 1 : 0;
    return OK;
}

PUBLIC int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **slice) {
    ENTER_OF(device, slice, sizeof *slice);
    Gpu *gpu = device;
    if (!gpu->mig) return NOT_SUPPORTED;
    if (index >= gpu->mig_instances || index >= MAX_MIG) return NOT_FOUND;
    *slice = &gpu->slices[index];
    return OK;
}

/* --- how a GPU is ------------------------------------------------------------------------------ */

PUBLIC int nvmlDeviceGetEccMode(void *device, unsigned *current, unsigned *pending) {
    ENTER_OF(device, current, sizeof *current);
    const Gpu *gpu = device;
    if (!gpu->has_ecc) return NOT_SUPPORTED;
    *current = gpu->ecc;
    *pending = gpu->ecc_pending;
    return OK;
}

PUBLIC int nvmlDeviceGetTotalEccErrors(void *device, unsigned kind, unsigned counter, unsigned long long *count) {
    ENTERED(enter_of(__func__, counter ? "1" : "0", device), count, sizeof *count, 0);
    const Gpu *gpu = device;
    if (kind != 1 || counter > 1) return INVALID;
    if (!gpu->ecc || gpu->mig) return NOT_SUPPORTED;
    *count = gpu->ecc_errors[counter];
    return OK;
}

PUBLIC int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                     unsigned *failed) {
    ENTERED(enter_of(__func__, NULL, device), pending, sizeof *pending, 0);
    const Gpu *gpu = device;
    if (!gpu->has_rows || gpu->mig) return NOT_SUPPORTED;
    *corrected = 0;
    *uncorrected = gpu->remap_pending || gpu->remap_failed;
    *pending = gpu->remap_pending;
    *failed = gpu->remap_failed;
    return OK;
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type, code;
    union {
        unsigned number;
        unsigned long long wide;
    } value;
} Field;

PUBLIC int nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    ENTER_OF(device, fields, sizeof *fields * (size_t)count);
    const Gpu *gpu = device;
    for (int i = 0; i < count; i++) {
        fields[i].code = fields[i].field == 230 && gpu->recovery >= 0 ? OK : INVALID;
        fields[i].value.wide = 0;
        fields[i].value.number = gpu->recovery < 0 ? 0 : (unsigned)gpu->recovery;
    }
    return OK;
}

typedef struct {
    unsigned char cluster[16];
    unsigned status, clique, state;
} Fabric;

typedef struct {
    unsigned version;
    Fabric fabric;
    unsigned mask;
    unsigned char summary; /* from version 3 on */
} FabricV;

PUBLIC int nvmlDeviceGetGpuFabricInfo(void *device, Fabric *fabric) {
    ENTER_OF(device, fabric, sizeof *fabric);
    const Gpu *gpu = device;
    if (!gpu->has_fabric) return NOT_SUPPORTED;
    fabric->status = gpu->fabric_status;
    fabric->state = gpu->fabric_state;
    return OK;
}

PUBLIC int nvmlDeviceGetGpuFabricInfoV(void *device, FabricV *info) {
    unsigned version = info->version >> 24, size = info->version & 0xFFFFFF;
    ENTER_OF(device, &info->fabric, size - sizeof info->version);
    const Gpu *gpu = device;
    if (version > machine.fabric_version || size != (version == 3 ? 40 : 36)) return ANOTHER_STRUCT;
    if (!gpu->has_fabric) return NOT_SUPPORTED;
    info->fabric.status = gpu->fabric_status;
    info->fabric.state = gpu->fabric_state;
    info->mask = gpu->fabric_mask;
    if (version == 3) info->summary = (unsigned char)gpu->fabric_summary;
    return OK;
}

PUBLIC int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode) {
    ENTER_OF(device, mode, sizeof *mode);
    *mode = ((Gpu *)device)->persistence;
    return OK;
}

PUBLIC int nvmlDeviceGetVirtualizationMode(void *device, unsigned *mode) {
    ENTER_OF(device, mode, sizeof *mode);
    *mode = ((Gpu *)device)->virtualization;
    return OK;
}

typedef struct {
    unsigned code, state;
    char info[128], product[128];
    unsigned enabled;
    struct {
        unsigned year;
        unsigned short month, day, hour, minute, second;
        unsigned char status;
    } expiry;
} Feature;

typedef struct {
    int supported;
    unsigned count;
    Feature features[3];
} Features;

PUBLIC int nvmlDeviceGetGridLicensableFeatures_v4(void *device, Features *told) {
    ENTER_OF(device, told, sizeof *told);
    const Gpu *gpu = device;
    memset(told, 0, sizeof *told);
    told->supported = gpu->virtualization == 2;
    told->count = told->supported;
    told->features[0].state = gpu->licensed;
    return OK;
}
