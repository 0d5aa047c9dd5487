#include "go_asm.h"
#include "textflag.h"

// func attachBlocks(pages []page, ids []messages.PageID, blocks []protocol.BlockID, depth int32, priority messages.Priority) (done int)
//
// A number that is no page, as NoPage, is above every length as an unsigned number.
TEXT ·attachBlocks(SB), NOSPLIT, $0-88
	MOVQ    pages_base+0(FP), DI
	MOVQ    pages_len+8(FP), R8
	MOVQ    ids_base+24(FP), SI
	MOVQ    ids_len+32(FP), CX
	MOVQ    blocks_base+48(FP), R9
	MOVLQZX depth+72(FP), R10
	SHLQ    $32, R10                // the depth of the next block, as the upper half of a word
	MOVQ    $0x100000000, R11
	MOVBLZX priority+76(FP), R12
	LEAQ    (SI)(CX*4), SI          // the ends of both arrays, and the index from there
	LEAQ    (R9)(CX*4), R9
	NEGQ    CX
	JEQ     done

next:
	MOVL (SI)(CX*4), AX
	MOVL (R9)(CX*4), DX
	CMPQ AX, R8
	JCC  noPage
	SHLQ $5, AX

	// The page must have a reference and cache nothing, and there must be a block.
	CMPL page_prev(DI)(AX*1), $0
	JLE  done
	CMPB page_state(DI)(AX*1), $const_used
	JNE  done
	CMPL page_block(DI)(AX*1), $-1
	JNE  done
	TESTL DX, DX
	JLT  done
	ORQ  R10, DX
	MOVQ DX, page_block(DI)(AX*1)
	MOVB R12, page_priority(DI)(AX*1)

noPage:
	ADDQ R11, R10
	INCQ CX
	JNE  next

done:
	ADDQ ids_len+32(FP), CX
	MOVQ CX, done+80(FP)
	RET
