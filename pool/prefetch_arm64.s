#include "textflag.h"

// The size of a record is 32 bytes; TestPageIsHalfACacheLine holds it.

// func prefetch(first *page, numbers []int32)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVD first+0(FP), R0
	MOVD numbers_base+8(FP), R1
	MOVD numbers_len+16(FP), R2
	CBZ  R2, done

next:
	MOVW.P 4(R1), R3
	ADD    R3<<5, R0, R4
	PRFM   (R4), PLDL1KEEP
	SUBS   $1, R2, R2
	BNE    next

done:
	RET
