/* A library with the name and a few of the functions of NVML: one GPU, one XID. For tests of how it is found and loaded. */
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { void *device; unsigned long long type, data; unsigned gi, ci; } event_t;
static int told;

int nvmlInitWithFlags(unsigned flags) { return getenv("STUB_INIT") ? atoi(getenv("STUB_INIT")) : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, VERSION, size); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = 12040; return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)0x1000; return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) { *device = (void *)0x1000; return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
  strncpy(text, "GPU-00000000-1111-2222-3333-444444444444", size);
  return 0;
}
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strncpy(text, "Stub GPU", size); return 0; }
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) { *minor = 5; return 0; }
int nvmlDeviceGetPciInfo_v3(void *device, pci_t *pci) {
  memset(pci, 0, sizeof *pci);
  pci->domain = 0x10000; pci->bus = 0xaf; pci->device = 1;
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 7; *minor = 5; return 0; }
int nvmlDeviceGetSupportedEventTypes(void *device, unsigned long long *types) { *types = 8; return 0; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) { return 0; }
int nvmlEventSetCreate(void **set) { *set = (void *)0x2000; return 0; }
int nvmlEventSetFree(void *set) { return 0; }
int nvmlEventSetWait_v2(void *set, event_t *event, unsigned milliseconds) {
  if (told) { usleep(1000 * milliseconds); return 10; }
  told = 1;
  event->device = (void *)0x1000; event->type = 8; event->data = 79; event->gi = event->ci = 0xffffffff;
  return 0;
}
