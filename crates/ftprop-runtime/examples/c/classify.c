/* Classifies raw images with a packed model:
 *
 *     classify MODEL IMAGES
 *
 * IMAGES holds one or more images as the model takes them: bytes, rows of pixels of channels. For each image one line:
 * its number, the best class, that class's name and its logit. */
#include <stdio.h>
#include <stdlib.h>

#include "ftprop_runtime.h"

static void *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    void *bytes = NULL;
    long size;
    if (file == NULL) return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (size = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        bytes = malloc((size_t)size + 1);
        if (bytes != NULL && fread(bytes, 1, (size_t)size, file) != (size_t)size) {
            free(bytes);
            bytes = NULL;
        }
        *length = (size_t)size;
    }
    fclose(file);
    return bytes;
}

int main(int count, char **arguments) {
    char error[256];
    ftp_options options = {0};
    size_t model_length, images_length, image_length, images, classes, image, class;
    if (count != 3) {
        fprintf(stderr, "usage: classify MODEL IMAGES\n");
        return 2;
    }
    void *model = read_file(arguments[1], &model_length);
    uint8_t *pixels = read_file(arguments[2], &images_length);
    if (model == NULL || pixels == NULL) {
        fprintf(stderr, "cannot read %s\n", arguments[model == NULL ? 1 : 2]);
        return 1;
    }
    options.threads = 2;
    ftp_engine *engine = ftp_load(model, model_length, &options, error, sizeof error);
    free(model);
    if (engine == NULL) {
        fprintf(stderr, "%s: %s\n", arguments[1], error);
        return 1;
    }
    image_length = ftp_height(engine) * ftp_width(engine) * ftp_channels(engine);
    images = images_length / image_length;
    classes = ftp_classes(engine);
    float *logits = malloc(images * classes * sizeof *logits + 1);
    if (logits == NULL || images * image_length != images_length) {
        fprintf(stderr, "%s: not a whole number of images of %zu bytes\n", arguments[2], image_length);
        return 1;
    }
    if (ftp_classify(engine, pixels, images, logits) != FTP_OK) {
        fprintf(stderr, "%s: the images do not fit the model\n", arguments[2]);
        return 1;
    }
    for (image = 0; image < images; image++) {
        size_t best = 0;
        const float *row = logits + image * classes;
        for (class = 1; class < classes; class++) {
            if (row[class] > row[best]) best = class;
        }
        const char *name = ftp_class_name(engine, best);
        printf("%zu %zu %s %.6f\n", image, best, name == NULL ? "-" : name, row[best]);
    }
    free(logits);
    free(pixels);
    ftp_free(engine);
    return 0;
}
