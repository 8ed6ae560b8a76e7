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
 *
 * A symbol that an old library lacks is left out when compiling: -DWITHOUT_nvmlDeviceGetMigMode.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))
#define TEXT 256
#define MAX_GPUS 64
#define MAX_TROUBLES 64
#define MAX_MIG 8

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

/* --- the scenario ------------------------------------------------------------------------------ */

typedef struct {
    char name[TEXT], uuid[TEXT];
    unsigned long long memory, memory_free;
    int has_memory_free;
    int major, minor;
    unsigned mig, mig_pending, mig_instances; /* mig: 0 off, 1 on */
    int has_mig;
    unsigned compute_mode;
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
} machine = {"550.54.15", "12.550.54.15", 12040, 0, 0, 0};

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

/* `fail CALL = CODE`, `delay CALL = MS`, `hang|crash|abort = CALL`; false if the line is none of these. */
static int read_trouble(const char *key, const char *value, int gpu) {
    if (!strncmp(key, "fail ", 5) || !strncmp(key, "delay ", 6)) {
        const char *space = strchr(key, ' ');
        char verb[16];
        snprintf(verb, sizeof verb, "%.*s", (int)(space - key), key);
        add_trouble(verb, space + 1, atol(value), gpu);
        return 1;
    }
    if (!strcmp(key, "hang") || !strcmp(key, "crash") || !strcmp(key, "abort")) {
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

/* Does what the scenario has in store for this call on this GPU (-1: no GPU); the code to return. */
static int enter(const char *call, int gpu) {
    for (int i = 0; i < trouble_count; i++) {
        const Trouble *trouble = &troubles[i];
        if (strcmp(trouble->call, call)) continue;
        if (trouble->first >= 0 && (gpu < trouble->first || gpu > trouble->last)) continue;
        if (!strcmp(trouble->verb, "fail")) return (int)trouble->number;
        if (!strcmp(trouble->verb, "delay")) usleep((useconds_t)(trouble->number * 1000));
        if (!strcmp(trouble->verb, "crash")) die(SIGSEGV);
        if (!strcmp(trouble->verb, "abort")) die(SIGABRT);
        while (!strcmp(trouble->verb, "hang")) pause();
    }
    return OK;
}

static int index_of(const void *device) {
    for (int i = 0; i < gpu_count; i++)
        if (device == &gpus[i]) return i;
    return -1;
}

static int enter_of(const char *call, const void *device) {
    if (!initialised) return UNINITIALIZED;
    int gpu = index_of(device);
    return gpu < 0 ? INVALID : enter(call, gpu);
}

static int give_text(const char *text, char *to, unsigned size) {
    if (strlen(text) + 1 > size) return TOO_SMALL;
    strcpy(to, text);
    return OK;
}

#define ENTER(gpu)                         \
    do {                                   \
        int code_ = enter(__func__, gpu);  \
        if (code_ != OK) return code_;     \
    } while (0)

#define ENTER_OF(device)                        \
    do {                                        \
        int code_ = enter_of(__func__, device); \
        if (code_ != OK) return code_;          \
    } while (0)

/* --- the library ------------------------------------------------------------------------------- */

#ifndef WITHOUT_nvmlInitWithFlags
PUBLIC int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (machine.chatty) {
        printf("[\"answer\", null, \"nvmlDeviceGetCount\", 3]\n\xff noise\n");
        fflush(stdout);
    }
    ENTER(-1);
    initialised = 1;
    return OK;
}
#endif

/* As the real one, this answers although initialising failed. */
#ifndef WITHOUT_nvmlSystemGetNVMLVersion
PUBLIC int nvmlSystemGetNVMLVersion(char *version, unsigned size) {
    ENTER(-1);
    return give_text(machine.nvml, version, size);
}
#endif

#ifndef WITHOUT_nvmlSystemGetDriverVersion
PUBLIC int nvmlSystemGetDriverVersion(char *version, unsigned size) {
    if (!initialised) return UNINITIALIZED;
    ENTER(-1);
    return give_text(machine.driver, version, size);
}
#endif

#ifndef WITHOUT_nvmlSystemGetCudaDriverVersion
PUBLIC int nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER(-1);
    *version = machine.cuda;
    return OK;
}
#endif

#ifndef WITHOUT_nvmlSystemGetCudaDriverVersion_v2
PUBLIC int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER(-1);
    *version = machine.cuda;
    return OK;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetCount_v2
PUBLIC int nvmlDeviceGetCount_v2(unsigned *count) {
    if (!initialised) return UNINITIALIZED;
    ENTER(-1);
    *count = machine.has_count ? machine.count : (unsigned)gpu_count;
    return OK;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetHandleByIndex_v2
PUBLIC int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (!initialised) return UNINITIALIZED;
    if (index >= (unsigned)gpu_count) return INVALID;
    ENTER((int)index);
    *device = &gpus[index];
    return OK;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetName
PUBLIC int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    ENTER_OF(device);
    return give_text(((Gpu *)device)->name, name, size);
}
#endif

#ifndef WITHOUT_nvmlDeviceGetUUID
PUBLIC int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
    ENTER_OF(device);
    return give_text(((Gpu *)device)->uuid, uuid, size);
}
#endif

typedef struct {
    unsigned long long total, free, used; /* bytes */
} Memory;

#ifndef WITHOUT_nvmlDeviceGetMemoryInfo
PUBLIC int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    ENTER_OF(device);
    const Gpu *gpu = device;
    memory->total = gpu->memory;
    memory->free = gpu->has_memory_free ? gpu->memory_free : gpu->memory;
    memory->used = memory->total - memory->free;
    return OK;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetCudaComputeCapability
PUBLIC int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    ENTER_OF(device);
    *major = ((Gpu *)device)->major;
    *minor = ((Gpu *)device)->minor;
    return OK;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetComputeMode
PUBLIC int nvmlDeviceGetComputeMode(void *device, unsigned *mode) {
    ENTER_OF(device);
    *mode = ((Gpu *)device)->compute_mode;
    return OK;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetMigMode
PUBLIC int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    ENTER_OF(device);
    const Gpu *gpu = device;
    if (!gpu->has_mig) return NOT_SUPPORTED;
    *current = gpu->mig;
    *pending = gpu->mig_pending;
    return OK;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetMaxMigDeviceCount
PUBLIC int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) {
    ENTER_OF(device);
    *count = ((Gpu *)device)->has_mig ? MAX_MIG - 1 : 0;
    return OK;
}
#endif

#ifndef WITHOUT_nvmlDeviceGetMigDeviceHandleByIndex
PUBLIC int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **slice) {
    ENTER_OF(device);
    Gpu *gpu = device;
    if (!gpu->mig) return NOT_SUPPORTED;
    if (index >= gpu->mig_instances || index >= MAX_MIG) return NOT_FOUND;
    *slice = &gpu->slices[index];
    return OK;
}
#endif
