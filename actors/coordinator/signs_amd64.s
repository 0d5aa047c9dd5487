#include "textflag.h"

// func disjunctionSSE2(first *messages.Token, n int) int32
//
// Four sums that do not wait for each other. SSE2 is a part of every amd64 processor.
TEXT ·disjunctionSSE2(SB), NOSPLIT, $0-20
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

// func disjunctionAVX2(first *messages.Token, n int) int32
//
// As disjunctionSSE2, with twice as many tokens in a turn, from the last one back: the first 32 may be left. A prompt that
// has just been written has its end in the first cache. Read from the front, the rest of it, from the second cache, would
// displace that end before it is read.
TEXT ·disjunctionAVX2(SB), NOSPLIT, $0-20
	MOVQ  first+0(FP), AX
	MOVQ  n+8(FP), CX
	LEAQ  (AX)(CX*4), AX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3

next:
	SUBQ $64, CX
	JLT  rest
	VPOR -32(AX), Y0, Y0
	VPOR -64(AX), Y1, Y1
	VPOR -96(AX), Y2, Y2
	VPOR -128(AX), Y3, Y3
	VPOR -160(AX), Y0, Y0
	VPOR -192(AX), Y1, Y1
	VPOR -224(AX), Y2, Y2
	VPOR -256(AX), Y3, Y3
	SUBQ $256, AX
	JMP  next

rest:
	ADDQ $32, CX
	JLT  done
	VPOR -32(AX), Y0, Y0
	VPOR -64(AX), Y1, Y1
	VPOR -96(AX), Y2, Y2
	VPOR -128(AX), Y3, Y3

done:
	VPOR         Y1, Y0, Y0
	VPOR         Y3, Y2, Y2
	VPOR         Y2, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPOR         X1, X0, X0
	VPSHUFD      $14, X0, X1
	VPOR         X1, X0, X0
	VPSHUFD      $1, X0, X1
	VPOR         X1, X0, X0
	VMOVD        X0, AX
	VZEROUPPER
	MOVL         AX, ret+16(FP)
	RET

// func hasAVX2() bool
//
// The processor must have AVX2 (leaf 7, EBX bit 5), and the system must save the registers
// (leaf 1, ECX bit 27: XGETBV is there; its bits 1 and 2: it saves XMM and YMM).
TEXT ·hasAVX2(SB), NOSPLIT, $0-1
	MOVB $0, ret+0(FP)
	XORL AX, AX
	XORL CX, CX
	CPUID
	CMPL AX, $7
	JLT  no
	MOVL $1, AX
	XORL CX, CX
	CPUID
	BTL  $27, CX
	JCC  no
	XORL CX, CX
	XGETBV
	ANDL $6, AX
	CMPL AX, $6
	JNE  no
	MOVL $7, AX
	XORL CX, CX
	CPUID
	BTL  $5, BX
	JCC  no
	MOVB $1, ret+0(FP)

no:
	RET
