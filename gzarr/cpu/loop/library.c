/* Functions of the libraries, which `bind` in module.c gives: see loop.h. */
#include "loop.h"

struct Library lib;
