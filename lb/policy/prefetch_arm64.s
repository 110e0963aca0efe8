#include "textflag.h"

// func prefetch(u *Upstream)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVD u+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET
