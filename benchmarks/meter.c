/* Counts the bytes of live tensors. torch's CPU allocator takes all of them from posix_memalign (c10/core/impl/
 * alloc_cpu.cpp); allocations by other callers are ignored. Preloaded before the C library, so that all threads count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SLOTS (1u << 20) /* a power of two, far more than the live tensors of a small training */

static struct { void *address; size_t size; } table[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t live, peak;

static size_t slot_of(void *address) { return ((uintptr_t)address >> 6) * 2654435761u & (SLOTS - 1); }

static void note(void *address, size_t size) {
    pthread_mutex_lock(&lock);
    size_t slot = slot_of(address);
    while (table[slot].address) slot = (slot + 1) & (SLOTS - 1);
    table[slot].address = address;
    table[slot].size = size;
    live += size;
    if (live > peak) peak = live;
    pthread_mutex_unlock(&lock);
}

static void forget(void *address) {
    pthread_mutex_lock(&lock);
    size_t slot = slot_of(address);
    while (table[slot].address && table[slot].address != address) slot = (slot + 1) & (SLOTS - 1);
    if (table[slot].address) {
        live -= table[slot].size;
        table[slot].address = NULL;
        /* Move up entries that this slot had displaced; otherwise a search would stop before reaching them. */
        for (size_t next = (slot + 1) & (SLOTS - 1); table[next].address; next = (next + 1) & (SLOTS - 1)) {
            size_t home = slot_of(table[next].address);
            if (((next - home) & (SLOTS - 1)) >= ((next - slot) & (SLOTS - 1))) {
                table[slot] = table[next];
                table[next].address = NULL;
                slot = next;
            }
        }
    }
    pthread_mutex_unlock(&lock);
}

static uintptr_t low, high; /* address range of libc10.so */

static int library(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!info->dlpi_name || !strstr(info->dlpi_name, "libc10.so")) return 0;
    low = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t end = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_LOAD && end > high) high = end;
    }
    return 1;
}

/* A child may be forked while another thread holds the lock, so a child counts nothing and never waits. */
static volatile int forked;
static void child(void) { forked = 1; }
__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, child); }

int posix_memalign(void **address, size_t alignment, size_t size) {
    static int (*real)(void **, size_t, size_t);
    if (!real) real = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
    int failed = real(address, alignment, size);
    if (!failed && *address && !forked && low <= (uintptr_t)__builtin_return_address(0) &&
        (uintptr_t)__builtin_return_address(0) < high) note(*address, size);
    return failed;
}

void free(void *address) {
    static void (*real)(void *);
    if (!real) real = (void (*)(void *))dlsym(RTLD_NEXT, "free");
    if (address && (uintptr_t)address % 64 == 0 && !forked) forget(address);
    real(address);
}

void meter_start(void) { dl_iterate_phdr(library, NULL); }
size_t meter_live(void) { return live; }
size_t meter_peak(void) { return peak; }
void meter_reset(void) { peak = live; }
