/* A library that was built without a provider says so, and names the option of the build. */
#include <string.h>

#include "garret/garret.h"
#include "unit/test.h"

TEST(a_provider_that_was_not_built_in_is_misuse)
{
	struct garret_options *o = NULL;
	struct garret_error err = { 0 };

	assert_int_equal(garret_options_new("state", &o, &err), -GARRET_MISUSE);
	assert_null(o);
	assert_non_null(strstr(err.msg, "-Dprovider_state=true"));
	assert_int_equal(garret_options_new("native", &o, NULL), 0);
	garret_options_free(o);
}

TEST_MAIN
