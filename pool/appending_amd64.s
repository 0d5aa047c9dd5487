#include "go_asm.h"
#include "textflag.h"

// func appendListed(pages []page, ids []messages.PageID, r *run, tail int32) (last int32, n int)
//
// The fields prev and next of a record are compared in one word, and so are priority, state
// and covered: page in page.go has them in this order. A number that is no page, as NoPage, is
// above every length as an unsigned number.
TEXT ·appendListed(SB), NOSPLIT, $8-80
	MOVQ    pages_base+0(FP), DI
	MOVQ    pages_len+8(FP), R8
	MOVQ    ids_base+24(FP), SI
	MOVQ    ids_len+32(FP), CX
	MOVQ    r+48(FP), R9
	MOVLQZX tail+56(FP), DX
	MOVQ    run_use(R9), R10
	MOVQ    R10, X0
	XORL    R11, R11                   // the earliest use that a page may have: any,
	CMPQ    R10, run_opUse(R9)
	CMOVQNE R10, R11                   // or that of the run, if the operation has another
	SUBQ    R11, R10
	MOVBQZX run_priority(R9), R13
	MOVL    run_depth(R9), R12
	MOVQ    run_lead(R9), R9
	MOVQ    R9, 0(SP)
	NEGQ    R9
	LEAQ    (SI)(R9*4), R9             // the ids, so many places ahead
	DECQ    CX                         // the index of the page
	MOVL    (SI)(CX*4), AX

next:
	// The page must be used, by one reference alone, and of the priority of the run.
	CMPQ AX, R8
	JCC  done
	MOVQ AX, BX
	SHLQ $5, BX
	ADDQ DI, BX
	MOVQ page_prev(BX), R15
	CMPQ R15, $1
	JNE  done
	CMPL page_priority(BX), R13
	JNE  done

	// It must cache a block less deep than the one before, and have the use of the run.
	MOVL    page_block(BX), R15
	CMPL    R15, $-1
	JEQ     done
	MOVL    page_depth(BX), R14
	CMPL    R14, R12
	JGE     done
	MOVQ    page_use(BX), R15
	SUBQ    R11, R15
	CMPQ    R15, R10
	JHI     done
	MOVL    R14, R12

	// The links: to the page behind and to the page that the hint names, if there are any.
	TESTQ CX, CX
	JEQ   lastPage
	MOVL  -4(SI)(CX*4), R15

hint:
	MOVL $-1, R14
	CMPQ CX, 0(SP)
	JLT  noHint
	MOVL (R9)(CX*4), R14

noHint:
	MOVQ X0, page_use(BX)
	MOVL DX, page_prev(BX)
	MOVL R15, page_next(BX)
	MOVL R14, page_child(BX)
	MOVB $const_listed, page_state(BX)
	MOVL AX, DX
	MOVL R15, AX
	DECQ CX
	JMP  next

lastPage:
	MOVL $-1, R15
	JMP  hint

done:
	MOVQ ids_len+32(FP), AX
	DECQ AX
	SUBQ CX, AX
	MOVL DX, last+64(FP)
	MOVQ AX, n+72(FP)
	RET

// func appendOfPiece(pages []page, ids []messages.PageID, r *pieceRun, tail int32) (last int32, n int)
//
// The fields are compared as in appendListed.
TEXT ·appendOfPiece(SB), NOSPLIT, $8-80
	MOVQ    pages_base+0(FP), DI
	MOVQ    pages_len+8(FP), R8
	MOVQ    ids_base+24(FP), SI
	MOVQ    ids_len+32(FP), CX
	MOVQ    r+48(FP), R9
	MOVLQZX tail+56(FP), DX
	MOVQ    pieceRun_opUse(R9), R10
	MOVL    pieceRun_piece(R9), R11
	MOVL    pieceRun_depth(R9), R12
	MOVBQZX pieceRun_priority(R9), R13
	MOVQ    pieceRun_turn(R9), R14
	MOVQ    R14, 0(SP)
	MOVQ    pieceRun_lead(R9), R9
	NEGQ    R9                         // from a page to the one of its hint, in places of the ids
	DECQ    CX                         // the index of the page
	MOVL    (SI)(CX*4), AX

next:
	// The page must belong to the piece, and be used, by one reference alone, and of its priority.
	CMPQ AX, R8
	JCC  done
	MOVQ AX, BX
	SHLQ $5, BX
	ADDQ DI, BX
	CMPQ page_prev(BX), $1
	JNE  done
	CMPL page_child(BX), R11
	JNE  done
	CMPL page_priority(BX), R13
	JNE  done

	// It must not be deeper than the one before.
	MOVL page_depth(BX), R14
	CMPL R14, R12
	JGT  done
	MOVL R14, R12

	// The later one of two uses, and the link to the page behind, if there is one.
	MOVQ    page_use(BX), R14
	CMPQ    R14, R10
	CMOVQCS R10, R14
	MOVL    $-1, R15
	TESTQ   CX, CX
	JEQ     link
	MOVL    -4(SI)(CX*4), R15

link:
	MOVQ R14, page_use(BX)
	MOVL DX, page_prev(BX)
	MOVL R15, page_next(BX)
	MOVL AX, DX

	// The hint, in one word with priority and state.
	XORL R14, R14
	CMPQ CX, 0(SP)
	JNE  towards
	NEGQ R9

towards:
	TESTQ R9, R9
	JEQ   noHint
	MOVQ  CX, R14
	ADDQ  R9, R14
	MOVL  (SI)(R14*4), R14
	SHRL  $1, R14
	SHLL  $const_hintShift, R14

noHint:
	ORL  R13, R14
	ORL  $(const_listed<<8), R14
	MOVL R14, page_priority(BX)
	MOVL R15, AX
	DECQ CX
	JMP  next

done:
	MOVQ ids_len+32(FP), AX
	DECQ AX
	SUBQ CX, AX
	MOVL DX, last+64(FP)
	MOVQ AX, n+72(FP)
	RET
