/*
 * A fuzz target is a file with LLVMFuzzerTestOneInput().  replay.c gives it a
 * main() for any compiler: the corpus and some mutations of it; clang's
 * libFuzzer is the one for long runs.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* assert() that no build leaves out. */
#define CHECK(x)                                                                      \
	do {                                                                          \
		if (!(x)) {                                                           \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			abort();                                                      \
		}                                                                     \
	} while (0)

#endif
