package attention

// attend computes the rows of a tile for the query heads of KV head g: scores of
// all keys seen, softmax, then the values. Rows share what is read of the cache
// and nothing else.
// The cache is read twice, first all keys and then all values: the softmax between them
// needs every score of a row, see the package comment.
func (k *Kernel) attend(s *scratch, t tile, g int) {
	l, st := k.layer, &k.plan.streams[t.stream]
	for r := range t.n {
		// The position of row r is the number of cached tokens and those of the step before it.
		s.spans[r] = l.sees(st, st.cached+t.first+r)
	}
	spans := s.spans[:t.n]
	k.read(s, t.stream, Keys, g, spans, func(rows []float32, r, index,
		n int) {
		k.score(s, t, g, r, index, n, rows)
	})
	for r := range spans {
		for a := range l.Heads / l.KVHeads {
			k.normalize(s, t, g, r, a)
		}
	}
	// A row of latent attention is key and value at once, so the keys are read again.
	part := Values
	if l.ValueDim > 0 {
		part = Keys
	}
	k.read(s, t.stream, part, g, spans, func(rows []float32, r, index,
		n int) {
		k.add(s, t, g, r, index, n, rows)
	})
	for r := range spans {
		for a := range l.Heads / l.KVHeads {
			// Dividing the sum once is one operation for each number of the output; dividing the
			// weights would be one for each key.
			inverse := s.totals[r*(l.Heads/l.KVHeads)+a]
			out := k.output(t, r, g, a)
			for d := range out {
				out[d] *= inverse
			}
		}
	}
}

// read visits the cached rows that any of the spans sees, in the order of
// positions: visit gets rows that a row r of the tile sees one behind the other,
// and the index that the first of them has among all keys that it sees.
// Reading what several rows see once is what makes a tile cheaper than its rows.
func (k *Kernel) read(
	s *scratch, stream int, part Part, g int, spans []span,
	visit func(rows []float32, r, index, n int),
) {
	// The union of the spans. Between two spans of one tile nothing lies that neither sees,
	// since their positions are consecutive.
	sinks, from, to := 0, spans[0].from, 0
	for _, sp := range spans {
		sinks, from, to = max(sinks, sp.sinks), min(from, sp.from), max(to, sp.to)
	}
	// The window of a row still reaches the sinks: one range, or the keys between would be read
	// and visited twice.
	if from <= sinks {
		sinks, from = 0, 0
	}
	k.readRange(s, stream, part, g, spans, 0, sinks, visit)
	k.readRange(s, stream, part, g, spans, from, to, visit)
}

// readRange reads the keys or values of positions [from, to), at most readRows at a time, and
// visits those that each row sees: what several rows of a tile see is decoded once.
func (k *Kernel) readRange(
	s *scratch, stream int, part Part, g int, spans []span, from, to int,
	visit func(rows []float32, r, index, n int),
) {
	d := k.layer.HeadDim
	for from < to {
		// The cache may give fewer rows than it is asked for, up to the end of a block.
		rows, n := k.cache.Read(s.rows, stream, part, g, from, min(readRows, to-from))
		for r, sp := range spans {
			// A row may see keys of both of its ranges in what was read.
			if end := min(from+n, sp.sinks); end > from {
				visit(rows, r, from, end-from)
			}
			if first, end := max(from, sp.from), min(from+n, sp.to); end > first {
				visit(rows[(first-from)*d:], r, sp.sinks+first-sp.from, end-first)
			}
		}
		from += n
	}
}

// scores are those of one row of the tile and one head of the group.
// There is room for the longest row of the step, so the place of a row does not depend on
// how long the others are.
func (k *Kernel) scores(s *scratch, r, a int) []float32 {
	group := k.layer.Heads / k.layer.KVHeads
	return s.scores[(r*group+a)*k.plan.maxKeys:][:s.spans[r].count()]
}

// query is the query of one row and head.
func (k *Kernel) query(t tile, r, g, a int) []float32 {
	l := k.layer
	row := k.plan.streams[t.stream].row + t.first + r
	return k.in.Q[row*k.in.QStride+(g*(l.Heads/l.KVHeads)+a)*l.HeadDim:][:l.HeadDim]
}

// output is where one row and head goes.
// Heads of a row lie one behind the other, as the next projection reads them.
func (k *Kernel) output(t tile, r, g, a int) []float32 {
	l := k.layer
	row, dim := k.plan.streams[t.stream].row+t.first+r, l.outDim()
	return k.out[(row*l.Heads+g*(l.Heads/l.KVHeads)+a)*dim:][:dim]
}

// score computes the scores of n keys.
// index is that of the first of them among the keys that the row sees.
func (k *Kernel) score(s *scratch, t tile, g, r, index, n int, rows []float32) {
	l := k.layer
	norm, d := l.norm(), l.HeadDim
	for a := range l.Heads / l.KVHeads {
		q, out := k.query(t, r, g, a), k.scores(s, r, a)[index:index+n]
		// The place of a key among those seen changes with every token, so its rotation cannot be
		// in the cache: a copy of the key is turned for each score.
		if l.CachePositions {
			for i := range out {
				copy(s.key, rows[i*d:(i+1)*d])
				l.RoPE.Rotate(s.key, index+i)
				out[i] = float32(Dot(q, s.key) * norm)
			}
			continue
		}
		dotRows(out, q, rows)
		for i, x := range out {
			out[i] = float32(x * norm)
		}
	}
}

// normalize turns scores into e^(score − largest) and keeps the inverse of their
// sum, to which a learned sink logit belongs.
func (k *Kernel) normalize(s *scratch, t tile, g, r, a int) {
	l, sp := k.layer, s.spans[r]
	head := g*(l.Heads/l.KVHeads) + a
	x := k.scores(s, r, a)
	if l.Cap > 0 {
		for i, y := range x {
			x[i] = float32(l.Cap * Tanh(y/l.Cap))
		}
	}
	// The bias goes by positions in the text. Sinks and window are two runs of them.
	if l.Bias != nil {
		position := k.plan.streams[t.stream].cached + t.first + r
		l.Bias.Add(x[:sp.sinks], head, position, 0)
		l.Bias.Add(x[sp.sinks:], head, position, sp.from)
	}
	// The largest score is subtracted: without it e^score overflows float32 at a score of 89.
	top := x[0]
	for _, y := range x {
		top = max(top, y)
	}
	// The denominator is a float64 sum, in the order of positions.
	total := 0.0
	// A sink logit takes part in the softmax like the score of a key whose value is 0.
	if l.SinkLogits != nil {
		top = max(top, l.SinkLogits[head])
		total = float64(Exp(l.SinkLogits[head] - top))
	}
	for i, y := range x {
		e := Exp(y - top)
		x[i] = e
		total += float64(e)
	}
	s.totals[r*(l.Heads/l.KVHeads)+a] = float32(1 / total)
	// The values are added to what is there.
	clear(k.output(t, r, g, a))
}

// add adds n weighted values.
// The weights are those of normalize, before they are divided by their sum.
func (k *Kernel) add(s *scratch, t tile, g, r, index, n int, rows []float32) {
	for a := range k.layer.Heads / k.layer.KVHeads {
		addRows(k.output(t, r, g, a), k.scores(s, r, a)[index:index+n], rows, k.layer.HeadDim)
	}
}

// dotRows gives the dot products of q with rows that lie one behind the other.
func dotRows(out, q, rows []float32) {
	d := len(q)
	for i := range out {
		out[i] = Dot(q, rows[i*d:(i+1)*d])
	}
}
