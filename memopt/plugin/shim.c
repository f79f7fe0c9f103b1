/* Registers memopt with TensorFlow where the symbol that does so is not exported.
 *
 * TensorFlow loads this library as a plugin and calls TF_InitGraph. No header, no C library and no
 * undefined symbol: one compiled file serves all versions. The structures are those of
 * tensorflow/c/experimental/grappler/grappler.h and tensorflow/c/tf_buffer.h.
 */
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const void *data;
  size_t length;
  void (*deallocator)(void *, size_t);
} Buffer;

typedef struct {
  size_t struct_size;
  void *ext;
  int toggles[19];
} Configs;

typedef void (*optimize_t)(void *, const Buffer *, const void *, Buffer *, void *);

typedef struct {
  size_t struct_size;
  void *ext;
  void *(*create)(void);
  optimize_t optimize;
  void (*destroy)(void *);
} Optimizer;

typedef struct {
  size_t struct_size;
  void *ext;
  int32_t major;
  int32_t minor;
  int32_t patch;
  const char *device_type;
  Configs *configs;
  Optimizer *optimizer;
} Registration;

typedef void (*set_status_t)(void *, int, const char *);

static optimize_t callback;
static set_status_t set_status;
static const char *device_type = "CPU";

void memopt_configure(optimize_t optimize, set_status_t status, const char *device) {
  callback = optimize;
  set_status = status;
  device_type = device;
}

static void optimize(void *self, const Buffer *source, const void *item, Buffer *target,
                     void *status) {
  /* 10 is ABORTED, "did nothing": an exception that gets out of the callback changes nothing. */
  if (set_status) set_status(status, 10, "memopt: unchanged");
  if (callback) callback(self, source, item, target, status);
}

void TF_InitGraph(Registration *registration, void *status) {
  (void)status;
  registration->device_type = device_type;
  registration->optimizer->optimize = optimize;
}
