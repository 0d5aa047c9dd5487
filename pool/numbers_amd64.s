#include "textflag.h"

// func outOfRange(first *messages.PageID, n int, pages uint32) bool
//
// Four numbers are compared at a time. SSE2, a part of every amd64 processor, compares signed
// numbers only, so 1<<31 is added to both sides.
TEXT ·outOfRange(SB), NOSPLIT, $0-25
	MOVQ   first+0(FP), SI
	MOVQ   n+8(FP), CX
	MOVL   pages+16(FP), AX
	XORL   $0x80000000, AX
	MOVQ   AX, X0
	PSHUFD $0, X0, X0
	MOVL   $0x80000001, AX
	MOVQ   AX, X1
	PSHUFD $0, X1, X1
	PXOR   X2, X2
	PXOR   X3, X3

next:
	SUBQ    $8, CX
	JLT     done
	MOVOU   (SI), X4
	MOVOU   16(SI), X5
	PADDL   X1, X4
	PADDL   X1, X5
	PCMPGTL X0, X4
	PCMPGTL X0, X5
	POR     X4, X2
	POR     X5, X3
	ADDQ    $32, SI
	JMP     next

done:
	POR      X3, X2
	PMOVMSKB X2, AX
	TESTL    AX, AX
	SETNE    ret+24(FP)
	RET
