#include "go_asm.h"
#include "textflag.h"

// func takeFetching(pages []page, at int32, ids []messages.PageID, evicted []protocol.Victim, record *page, bound protocol.Use) (next int32, n int)
//
// A record has 32 bytes; TestPageIsHalfACacheLine holds it. The number none is above every
// length as an unsigned number, so one comparison finds the end of the list.
TEXT ·takeFetching(SB), NOSPLIT, $0-112
	MOVQ    pages_base+0(FP), DI
	MOVQ    pages_len+8(FP), R8
	MOVLQZX at+24(FP), AX
	MOVQ    ids_base+32(FP), SI
	MOVQ    ids_len+40(FP), CX
	MOVQ    evicted_base+56(FP), R9
	MOVQ    record+80(FP), R10
	MOVQ    bound+88(FP), R11
	MOVUPS  (R10), X0
	MOVUPS  16(R10), X1
	XORQ    DX, DX              // pages taken
	MOVL    $1, R14             // from the page before to this one
	TESTQ   CX, CX
	JEQ     done
	CMPQ    AX, R8
	JCC     done                // none
	MOVQ    AX, BX
	SHLQ    $5, BX
	ADDQ    DI, BX              // the record
	MOVLQSX page_child(BX), R15
	SARQ    $63, R15            // −1 where pages have no hints
	XORQ    $-1, R15
	MOVQ    CX, R13
	SUBQ    $const_hintDistance, R13
	ANDQ    R13, R15            // places whose hint leads to a place of ids
	JMP     first

next:
	MOVQ AX, BX
	SHLQ $5, BX
	ADDQ DI, BX

first:
	MOVQ page_use(BX), R12
	CMPQ R12, R11
	JCC  done                   // use ≥ bound

	// Note the page that the hint names in its place of ids, and prefetch its record.
	MOVLQSX page_child(BX), R13
	CMPQ    DX, R15
	JGE     prefetch
	MOVL    R13, (const_hintDistance*4)(SI)(DX*4)

prefetch:
	SHLQ       $5, R13
	PREFETCHT1 (DI)(R13*1)

	// Fill in the id and the victim: block and depth in one word, and priority and tenant,
	// whose number is 0.
	MOVL    AX, (SI)(DX*4)
	MOVL    AX, const_victimPage(R9)
	MOVQ    page_block(BX), R13
	MOVQ    R13, const_victimBlock(R9)
	MOVBLZX page_priority(BX), R13
	MOVL    R13, const_victimPriority(R9)
	MOVQ    R12, const_victimUse(R9)
	ADDQ    $const_victimSize, R9
	INCQ    DX

	// The next page is most likely as far behind as this one, or the one that the hint has
	// named; the branches make these guesses, so that the processor goes on before it has
	// read the record.
	MOVLQZX page_next(BX), R13
	MOVUPS  X0, (BX)
	MOVUPS  X1, 16(BX)
	CMPQ    DX, CX
	JEQ     full
	ADDL    R14, AX
	CMPL    AX, R13
	JEQ     some
	ADDL    R13, R14
	SUBL    AX, R14
	MOVL    (SI)(DX*4), AX
	CMPL    AX, R13
	JEQ     some
	MOVL    R13, AX

some:
	CMPQ AX, R8
	JCS  next
	JMP  done

full:
	MOVL R13, AX

done:
	MOVL AX, next+96(FP)
	MOVQ DX, n+104(FP)
	RET
