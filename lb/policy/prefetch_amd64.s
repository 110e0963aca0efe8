#include "textflag.h"

// func prefetch(u *Upstream)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVQ u+0(FP), AX
	PREFETCHT0 (AX)
	RET
