//! Drives kvbm-logical with the prompts of a file that `bench/peers` wrote, and prints
//! one JSON object: the seconds of each stage, the blocks asked for and the blocks hit.
//!
//!   kvbm-driver FILE lru|lineage
//!
//! A request is what a server does for a prompt: hash its tokens, match the hashes,
//! allocate blocks for the rest and register them, and drop all blocks. The blocks are
//! dropped from the last one on, so that the head of a prompt stays longest, as in the
//! engine that this driver is compared with.

use std::io::{Error, ErrorKind, Read, Result};
use std::time::{Duration, Instant};

use dynamo_tokens::TokenBlockSequence;
use kvbm_logical::blocks::ImmutableBlock;
use kvbm_logical::manager::LineageEviction;
use kvbm_logical::registry::BlockRegistry;
use kvbm_logical::{BlockManager, KvbmSequenceHashProvider, SequenceHash};

/// The metadata of a block: none.
#[derive(Debug, Clone)]
struct Kv;

/// Prompts as the file has them: the identities of their blocks in the trace.
struct Prompts {
    own: usize,   // tokens of a block of the trace
    size: usize,  // tokens of a block of the cache
    pages: usize, // blocks that fit into the cache
    requests: Vec<Vec<u32>>,
}

impl Prompts {
    /// Reads a file: little-endian 32-bit numbers, a count before each list.
    fn read(path: &str) -> Result<Self> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.read_to_end(&mut bytes)?;
        let mut numbers = bytes
            .chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let mut next = || numbers.next().ok_or(Error::from(ErrorKind::UnexpectedEof));
        let (own, size, pages) = (next()? as usize, next()? as usize, next()? as usize);
        let mut requests = Vec::new();
        for _ in 0..next()? {
            let n = next()?;
            requests.push((0..n).map(|_| next()).collect::<Result<_>>()?);
        }
        Ok(Self { own, size, pages, requests })
    }

    /// The tokens of a request, as many as the cache can hold.
    fn tokens(&self, request: &[u32], tokens: &mut Vec<u32>) {
        tokens.clear();
        for id in request {
            let first = *id * self.own as u32;
            tokens.extend(first..first + self.own as u32);
        }
        tokens.truncate(self.pages * self.size);
    }
}

/// Adds the time since the last call to a stage.
struct Clock(Instant);

impl Clock {
    fn lap(&mut self, stage: &mut Duration) {
        let now = Instant::now();
        *stage += now - self.0;
        self.0 = now;
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, file, backend] = args.as_slice() else {
        return Err(Error::new(ErrorKind::InvalidInput, "usage: kvbm-driver FILE lru|lineage"));
    };
    let prompts = Prompts::read(file)?;
    let builder = BlockManager::<Kv>::builder()
        .block_count(prompts.pages)
        .block_size(prompts.size)
        .registry(BlockRegistry::builder().build());
    let builder = match backend.as_str() {
        "lru" => builder.with_lru_backend(),
        "lineage" => builder.with_lineage_backend_eviction(LineageEviction::Tick),
        _ => return Err(Error::new(ErrorKind::InvalidInput, "the backend is lru or lineage")),
    };
    let manager = builder.build().expect("the configuration is valid");

    let (mut hash, mut matching, mut store, mut release) = Default::default();
    let (mut blocks, mut hits, mut tokens) = (0, 0, Vec::new());
    for request in &prompts.requests {
        prompts.tokens(request, &mut tokens);
        blocks += request.len() * prompts.own / prompts.size;
        let mut clock = Clock(Instant::now());
        let sequence = TokenBlockSequence::from_slice(&tokens, prompts.size as u32, None);
        let hashes: Vec<SequenceHash> =
            sequence.blocks().iter().map(|b| b.kvbm_sequence_hash()).collect();
        clock.lap(&mut hash);
        let mut held: Vec<ImmutableBlock<Kv>> = manager.match_blocks(&hashes);
        hits += held.len();
        clock.lap(&mut matching);
        let rest = &sequence.blocks()[held.len()..];
        if !rest.is_empty() {
            let free = manager.allocate_blocks(rest.len()).expect("all blocks are unused");
            let complete = free.into_iter().zip(rest).map(|(b, t)| match b.complete(t) {
                Ok(b) => b,
                Err(_) => panic!("a block has the size of its tokens"),
            });
            held.extend(manager.register_blocks(complete.collect()));
        }
        clock.lap(&mut store);
        while let Some(block) = held.pop() {
            drop(block);
        }
        drop(held);
        clock.lap(&mut release);
    }
    let all: Duration = hash + matching + store + release;
    println!(
        "{{\"version\":\"1.6.1\",\"requests\":{},\"blocks\":{blocks},\"hits\":{hits},\"seconds\":{},\
         \"stages\":{{\"hash\":{},\"match\":{},\"store\":{},\"release\":{}}}}}",
        prompts.requests.len(), all.as_secs_f64(),
        hash.as_secs_f64(), matching.as_secs_f64(), store.as_secs_f64(), release.as_secs_f64(),
    );
    Ok(())
}
