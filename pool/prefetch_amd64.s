#include "textflag.h"

// The size of a record is 32 bytes; TestPageIsHalfACacheLine holds it.

// func prefetch(first *page, numbers []int32)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVQ  first+0(FP), AX
	MOVQ  numbers_base+8(FP), BX
	MOVQ  numbers_len+16(FP), CX
	TESTQ CX, CX
	JZ    done

next:
	MOVLQSX     (BX), DX
	SHLQ        $5, DX
	PREFETCHT0  (AX)(DX*1)
	ADDQ        $4, BX
	DECQ        CX
	JNZ         next

done:
	RET
