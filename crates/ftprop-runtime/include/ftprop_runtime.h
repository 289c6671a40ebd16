/* The C interface of ftprop-runtime: load a packed model, classify images.
 *
 * Build the library with
 *
 *     cargo rustc --release -p ftprop-runtime --crate-type staticlib     (libftprop_runtime.a)
 *     cargo rustc --release -p ftprop-runtime --crate-type cdylib        (libftprop_runtime.so)
 *
 * and link the static one with -lpthread -ldl -lm. examples/c holds a program and a script that builds and runs it.
 *
 * An engine classifies for one thread at a time; a second one is told that it is busy. Different engines are
 * independent. Nothing but ftp_load allocates.
 */
#ifndef FTPROP_RUNTIME_H
#define FTPROP_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A loaded model. */
typedef struct ftp_engine ftp_engine;

/* How an engine works. A zero or NULL stands for the default. */
typedef struct ftp_options {
    /* Threads, the caller's among them; 1 by default. */
    uint32_t threads;
    /* Images that a thread takes through the network together, fewer where memory_limit has no room; 16 by default. */
    uint32_t images_together;
    /* The most bytes the engine may allocate, at most 4 GiB; 512 MiB by default. */
    uint64_t memory_limit;
    /* "avx512", "avx2", "neon" or "scalar"; by default the environment variable FTPROP_KERNELS or the fastest. */
    const char *kernels;
    /* The most operations that one image may take, see ftp_operations; 2^34 by default. */
    uint64_t operation_limit;
} ftp_options;

/* What went wrong. */
enum {
    FTP_OK = 0,
    /* A pointer was NULL where it must not be. */
    FTP_NULL = 1,
    /* The images do not fit the model. */
    FTP_SHAPE = 2,
    /* Another thread classifies with this engine now. */
    FTP_BUSY = 3,
    /* The engine failed in a way that it should not. */
    FTP_FAILED = 4
};

/* Loads a packed model from memory, which is not needed afterwards. `options` may be NULL. Returns NULL when the model
 * cannot be loaded and then writes one line that says why to `error`, cut to `error_size` bytes with the final NUL;
 * `error` may be NULL. A model that would take more memory or work than the options allow is refused, and so is one
 * that the system has no memory for. */
ftp_engine *ftp_load(const void *bytes, size_t length, const ftp_options *options, char *error, size_t error_size);

/* Frees an engine; NULL is fine. */
void ftp_free(ftp_engine *engine);

/* The image that the model takes: bytes, rows of pixels of channels. 0 for a NULL engine, as for all sizes below. */
size_t ftp_height(const ftp_engine *engine);
size_t ftp_width(const ftp_engine *engine);
size_t ftp_channels(const ftp_engine *engine);

/* 1 where the model takes rows of a table, channels real numbers each, and no pictures. */
int ftp_takes_reals(const ftp_engine *engine);

/* To how many pixels a picture's shorter edge is scaled before its centre is cut out; 0 for not at all. */
size_t ftp_resize_shorter(const ftp_engine *engine);

/* How many logits an image gets. */
size_t ftp_classes(const ftp_engine *engine);

/* Bytes that the engine takes for its weights and buffers. */
uint64_t ftp_memory(const ftp_engine *engine);

/* What one image costs: its multiply-adds, and 16 for every value that pools and the like read. */
uint64_t ftp_operations(const ftp_engine *engine);

/* The name of a class, which lives as long as the engine; NULL if it has none. */
const char *ftp_class_name(const ftp_engine *engine, size_t number);

/* The name of the kernels in use, which lives for ever. */
const char *ftp_kernels(const ftp_engine *engine);

/* Classifies `count` images of height * width * channels bytes each and writes count * classes logits. Returns FTP_OK
 * or what went wrong. */
int ftp_classify(ftp_engine *engine, const uint8_t *images, size_t count, float *logits);

/* The same for a model that takes rows of a table, see ftp_takes_reals. What stands for texts and for missing values, and
 * what is taken from numbers far from 0 (`origin`), is the caller's work, as the model's note `table` says; standardising is the
 * model's. */
int ftp_classify_reals(ftp_engine *engine, const float *rows, size_t count, float *logits);

#ifdef __cplusplus
}
#endif

#endif
