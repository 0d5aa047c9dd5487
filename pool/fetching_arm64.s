#include "go_asm.h"
#include "textflag.h"

// func takeFetching(pages []page, at int32, ids []messages.PageID, evicted []protocol.Victim, record *page, bound protocol.Use) (next int32, n int)
//
// A record has 32 bytes; TestPageIsHalfACacheLine holds it. The number none is above every
// length as an unsigned number, so one comparison finds the end of the list.
TEXT ·takeFetching(SB), NOSPLIT, $0-112
	MOVD  pages_base+0(FP), R0
	MOVD  pages_len+8(FP), R1
	MOVWU at+24(FP), R2
	MOVD  ids_base+32(FP), R3
	MOVD  ids_len+40(FP), R4
	MOVD  evicted_base+56(FP), R5
	MOVD  record+80(FP), R6
	MOVD  bound+88(FP), R7
	LDP   (R6), (R8, R9)
	LDP   16(R6), (R10, R11)
	MOVD  ZR, R12              // pages taken
	MOVD  $1, R19              // from the page before to this one

next:
	CMP  R4, R12
	BGE  done
	CMP  R1, R2
	BHS  done                  // none
	ADD  R2<<5, R0, R13        // the record
	MOVD page_use(R13), R14
	CMP  R7, R14
	BHS  done                  // use ≥ bound

	// Prefetch the record that the hint names.
	MOVW page_child(R13), R15
	ADD  R15<<5, R0, R15
	PRFM (R15), PLDL2KEEP

	// Fill in the id and the victim.
	MOVW.P R2, 4(R3)
	MOVW   R2, const_victimPage(R5)
	MOVW   page_block(R13), R15
	MOVW   R15, const_victimBlock(R5)
	MOVW   page_depth(R13), R15
	MOVW   R15, const_victimDepth(R5)
	MOVBU  page_priority(R13), R15
	MOVB   R15, const_victimPriority(R5)
	MOVD   $const_otherTenants, R15
	MOVH   R15, const_victimTenant(R5)
	MOVD   R14, const_victimUse(R5)
	ADD    $const_victimSize, R5
	ADD    $1, R12

	// The next page is most likely as far behind as this one; the branch makes that guess.
	MOVWU page_next(R13), R15
	STP   (R8, R9), (R13)
	STP   (R10, R11), 16(R13)
	ADDW  R19, R2, R2
	CMPW  R15, R2
	BEQ   next
	ADDW  R15, R19, R19
	SUBW  R2, R19, R19
	MOVWU R15, R2
	B     next

done:
	MOVW R2, next+96(FP)
	MOVD R12, n+104(FP)
	RET
