#include "textflag.h"

// func disjunction(first *messages.Token, n int) int32
//
// Four sums that do not wait for each other. SSE2 is a part of every amd64 processor.
TEXT ·disjunction(SB), NOSPLIT, $0-20
	MOVQ first+0(FP), AX
	MOVQ n+8(FP), CX
	PXOR X0, X0
	PXOR X1, X1
	PXOR X2, X2
	PXOR X3, X3

next:
	SUBQ  $32, CX
	JLT   done
	MOVOU (AX), X4
	MOVOU 16(AX), X5
	MOVOU 32(AX), X6
	MOVOU 48(AX), X7
	POR   X4, X0
	POR   X5, X1
	POR   X6, X2
	POR   X7, X3
	MOVOU 64(AX), X8
	MOVOU 80(AX), X9
	MOVOU 96(AX), X10
	MOVOU 112(AX), X11
	POR   X8, X0
	POR   X9, X1
	POR   X10, X2
	POR   X11, X3
	ADDQ  $128, AX
	JMP   next

done:
	POR      X1, X0
	POR      X3, X2
	POR      X2, X0
	MOVHLPS  X0, X1
	POR      X1, X0
	PSHUFD   $1, X0, X1
	POR      X1, X0
	MOVQ     X0, AX
	MOVL     AX, ret+16(FP)
	RET
