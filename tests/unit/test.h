/*
 * cmocka behind TEST(): a test puts itself in a linker section, so none is
 * forgotten, and fails when it leaves a descriptor open.
 */
#ifndef TESTS_TEST_H
#define TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h> /* wants the four above it */

#include "base/fd.h"

static int test_fds;

static inline int test_fds_before(void **state)
{
	(void)state;
	test_fds = fd_count();
	return 0;
}

static inline int test_fds_after(void **state)
{
	int now = fd_count();

	(void)state;
	if (now != test_fds) {
		print_error("descriptors: %d before, %d after\n", test_fds, now);
		return -1;
	}
	return 0;
}

#define TEST(name)                                                                      \
	static void name(void **state);                                                 \
	__attribute__((section("garret_tests"), used,                                   \
		       aligned(8))) static const struct CMUnitTest name##_entry =       \
		cmocka_unit_test_setup_teardown(name, test_fds_before, test_fds_after); \
	static void name(void **state __attribute__((unused)))

extern const struct CMUnitTest __start_garret_tests[], __stop_garret_tests[];

#define TEST_MAIN                                                                          \
	int main(void)                                                                     \
	{                                                                                  \
		return _cmocka_run_group_tests(                                            \
			__FILE__, __start_garret_tests,                                    \
			(size_t)(__stop_garret_tests - __start_garret_tests), NULL, NULL); \
	}

#endif
