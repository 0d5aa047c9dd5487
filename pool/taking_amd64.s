#include "go_asm.h"
#include "textflag.h"

// func takePiece(pages []page, at int32, ids []messages.PageID, evicted []protocol.Victim, record *page) (next int32, n int)
//
// A record has 32 bytes; TestPageIsHalfACacheLine holds it. The number none is above every
// length as an unsigned number, so one comparison finds the end of the list.
TEXT ·takePiece(SB), NOSPLIT, $0-104
	MOVQ    pages_base+0(FP), DI
	MOVQ    pages_len+8(FP), R8
	MOVLQZX at+24(FP), AX
	MOVQ    ids_base+32(FP), SI
	MOVQ    ids_len+40(FP), CX
	MOVQ    evicted_base+56(FP), R9
	MOVQ    record+80(FP), R10
	MOVUPS  (R10), X0
	MOVUPS  16(R10), X1
	XORQ    DX, DX              // pages taken
	XORQ    R14, R14            // from the page before to this one
	XORQ    R15, R15            // how far to prefetch, in bytes
	XORQ    R10, R10            // pages taken before the current run

next:
	CMPQ DX, CX
	JGE  done
	CMPQ AX, R8
	JCC  done                   // none
	MOVQ AX, BX
	SHLQ $5, BX
	ADDQ DI, BX                 // the record

	// Fill in the id and the victim: block and depth in one word, and priority and tenant,
	// whose number is 0.
	MOVL    AX, (SI)(DX*4)
	MOVL    AX, const_victimPage(R9)
	MOVQ    page_block(BX), R13
	MOVQ    R13, const_victimBlock(R9)
	MOVBLZX page_priority(BX), R13
	MOVL    R13, const_victimPriority(R9)
	MOVQ    page_use(BX), R12
	MOVQ    R12, const_victimUse(R9)
	ADDQ    $const_victimSize, R9
	INCQ    DX
	MOVLQZX page_next(BX), R13
	MOVUPS  X0, (BX)
	MOVUPS  X1, 16(BX)

	// The next page is most likely as far behind as this one; the branch makes that guess.
	ADDL       R14, AX
	CMPL       R13, AX
	JNE        other
	PREFETCHT1 (BX)(R15*1)
	JMP        next

other:
	ADDL    R13, R14
	SUBL    AX, R14
	MOVL    R13, AX
	MOVLQSX R14, R15
	MOVQ    DX, R12
	SUBQ    R10, R12            // pages of the run that ends
	MOVQ    DX, R10
	LEAL    1(R14), R13
	TESTL   $-3, R13
	JNE     scattered           // neither 1 nor −1

	// Pages that adjoin: prefetch the first ones, four times as many as the run before had. The
	// first run, which the last block of a prompt may be in front of, may have all pages of the piece.
	SHLQ $2, R12
	CMPQ DX, $2
	JLE  most
	CMPQ R12, $const_fetchedPages
	JLE  some

most:
	MOVQ $const_fetchedPages, R12

some:
	MOVQ  R15, R13
	SHLQ  $6, R13
	SHLQ  $5, R15
	IMULQ R12, R15
	SUBQ  DX, CX
	CMPQ  CX, R12
	JGT   long
	XORQ  R15, R15              // the piece ends before
	MOVQ  CX, R12

long:
	ADDQ DX, CX

burst:
	ADDQ       R13, BX
	PREFETCHT1 (BX)
	SUBQ       $2, R12
	JGT        burst
	JMP        next

scattered:
	XORQ R15, R15
	JMP  next

done:
	MOVL AX, next+88(FP)
	MOVQ DX, n+96(FP)
	RET

// func takePairs(pages []page, head, tail int32, ids []messages.PageID, evicted []protocol.Victim, record *page) (middle int32, pairs int)
//
// A hint is the upper 22 bits of the word of priority, state and covered: the number of a cache line.
TEXT ·takePairs(SB), NOSPLIT, $0-104
	MOVQ    pages_base+0(FP), DI
	MOVLQZX head+24(FP), AX
	MOVLQZX tail+28(FP), R11
	MOVQ    ids_base+32(FP), SI
	MOVQ    ids_len+40(FP), R10
	MOVQ    evicted_base+56(FP), R9
	MOVQ    record+80(FP), R13
	MOVUPS  (R13), X0
	MOVUPS  16(R13), X1
	XORQ    DX, DX              // pairs, and the place of the page from the head
	DECQ    R10                 // the place of the page from the tail
	IMUL3Q  $const_victimSize, R10, R12
	ADDQ    R9, R12             // its victim

pair:
	CMPQ DX, R10
	JGE  done
	CMPL AX, R11
	JEQ  done
	MOVQ AX, BX
	SHLQ $5, BX
	ADDQ DI, BX                 // the records
	MOVQ R11, R8
	SHLQ $5, R8
	ADDQ DI, R8

	MOVL       page_priority(BX), CX
	MOVL       page_priority(R8), R14
	SHRL       $const_hintShift, CX
	SHRL       $const_hintShift, R14
	SHLQ       $6, CX
	SHLQ       $6, R14
	PREFETCHT1 (DI)(CX*1)
	PREFETCHT1 (DI)(R14*1)

	// The ids and the victims, as in takePiece.
	MOVL    AX, (SI)(DX*4)
	MOVL    AX, const_victimPage(R9)
	MOVLQZX page_next(BX), AX
	MOVQ    page_block(BX), R13
	MOVQ    R13, const_victimBlock(R9)
	MOVBLZX page_priority(BX), R13
	MOVL    R13, const_victimPriority(R9)
	MOVQ    page_use(BX), R13
	MOVQ    R13, const_victimUse(R9)
	MOVUPS  X0, (BX)
	MOVUPS  X1, 16(BX)

	MOVL    R11, (SI)(R10*4)
	MOVL    R11, const_victimPage(R12)
	MOVL    R11, R15
	MOVLQZX page_prev(R8), R11
	MOVQ    page_block(R8), R13
	MOVQ    R13, const_victimBlock(R12)
	MOVBLZX page_priority(R8), R13
	MOVL    R13, const_victimPriority(R12)
	MOVQ    page_use(R8), R13
	MOVQ    R13, const_victimUse(R12)
	MOVUPS  X0, (R8)
	MOVUPS  X1, 16(R8)

	ADDQ $const_victimSize, R9
	SUBQ $const_victimSize, R12
	INCQ DX
	DECQ R10
	CMPL AX, R15
	JNE  pair
	MOVL $-1, AX                // the last two were neighbours

done:
	MOVL AX, middle+88(FP)
	MOVQ DX, pairs+96(FP)
	RET

// func fetchPiece(record *piece, first *page, distance, lines int)
TEXT ·fetchPiece(SB), NOSPLIT, $0-32
	MOVQ       record+0(FP), AX
	MOVQ       first+8(FP), BX
	MOVQ       distance+16(FP), CX
	MOVQ       lines+24(FP), DX
	PREFETCHT1 (AX)
	PREFETCHT1 64(AX)

line:
	PREFETCHT1 (BX)
	ADDQ       CX, BX
	DECQ       DX
	JGT        line
	RET

// func fetchPages(a, b *page)
TEXT ·fetchPages(SB), NOSPLIT, $0-16
	MOVQ       a+0(FP), AX
	MOVQ       b+8(FP), BX
	PREFETCHT1 (AX)
	PREFETCHT1 (BX)
	RET
