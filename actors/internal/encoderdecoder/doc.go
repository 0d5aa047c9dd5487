// Package encoderdecoder holds the tests of engines of encoder–decoder models: whole
// engines on the simulated device, with a host that writes and checks every byte and a
// checker of order.
//
// Such a model has one pool more than its decoder alone, the cross pool: its pages hold
// the keys and values that the decoder's layers compute from the encoder's output. To
// the engine it is a pool like the others, whose pages are matched by another key, the
// encoder's input, in the same round (see the coordinator's encoder.go and package
// tree). What these tests hold:
//
//   - an input is the same only as a whole: tokens, items, length, namespace; identical
//     inputs share all pages by reference, and what is left of an input that lost its
//     tail is still reused;
//   - the first commit that computes anything commits the input, since no layer of the
//     decoder could have computed anything without it;
//   - a refusal for want of pages of either kind takes nothing of the other;
//   - one table serves all beams, and neither grows nor leaves a window;
//   - pins, prefetches, lookups and invalidations of a prefix without tokens are about
//     the input itself, all others about what the decoder has behind it;
//   - events tell of blocks of the input as of others, without the padding;
//   - failures of actors lose what they lose for any model.
package encoderdecoder
