// Branches that every work item takes, to keep reads in order: ALWAYS(n) is true, but compilers do not know it.
//
// Mesa's compiler for Adreno moves up to eight reads to the start of a basic block, and their results take registers. If
// a work item needs more than half of a wave's registers, a processor holds only one wave, which waits for its reads. A
// branch starts a new basic block, so reads after it stay after it.

#pragma once

#ifndef ORDERED
#define ORDERED 0                       // 1: reads stay in order
#endif

// n: the number of the branch, at least 0. Compilers merge branches that have the same condition.
#if ORDERED
#define ALWAYS(n) ((int)get_group_id(0) != -1 - (n))
#else
#define ALWAYS(n) true
#endif
