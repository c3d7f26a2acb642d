//! What a client is sent: bytes, a page straight from the store's memory, a fetch that others share, or an origin's
//! answer as it comes.

use std::borrow::Borrow;
use std::io::IoSlice;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use nuthatch_store::Held;

use super::client::Answering;
use super::flight::{Broken, Reader};
use super::log::Entry;
use crate::origin::OriginBody;

/// A response's body.
pub struct PageBody {
    source: Source,
    /// Is written when the body has ended, or was given up.
    entry: Option<Box<Entry>>,
    answering: Option<Answering>,
}

/// Where it comes from.
enum Source {
    Empty,
    Bytes(Bytes),
    Page(PagePiece),
    /// Several parts: bytes and pieces of one page by turns.
    Parts(std::vec::IntoIter<Part>, u64),
    Flight(Listening),
    Origin(Box<OriginBody>),
    /// It breaks off here.
    Broken,
}

/// One part of several.
pub(crate) enum Part {
    Bytes(Bytes),
    /// These bytes of the page.
    Page(Range<usize>, Arc<Held>),
}

impl PageBody {
    fn new(source: Source) -> PageBody {
        PageBody { source, entry: None, answering: None }
    }

    /// Nothing.
    pub fn empty() -> PageBody {
        PageBody::new(Source::Empty)
    }

    /// These bytes.
    pub fn bytes(bytes: impl Into<Bytes>) -> PageBody {
        let bytes = bytes.into();
        if bytes.is_empty() { PageBody::empty() } else { PageBody::new(Source::Bytes(bytes)) }
    }

    /// `at..end` of a value that stays where it is until it is sent.
    pub(crate) fn page(held: Arc<Held>, at: usize, end: usize) -> PageBody {
        if at == end { PageBody::empty() } else { PageBody::new(Source::Page(PagePiece::new(held, at, end))) }
    }

    pub(crate) fn parts(parts: Vec<Part>) -> PageBody {
        let length = |part: &Part| match part {
            Part::Bytes(bytes) => bytes.len(),
            Part::Page(range, _) => range.len(),
        };
        let bytes = parts.iter().map(length).sum::<usize>();
        PageBody::new(Source::Parts(parts.into_iter(), bytes as u64))
    }

    /// What a fetch brings, `bytes` in all if that is known.
    pub(crate) fn flight(reader: Reader, bytes: Option<u64>) -> PageBody {
        PageBody::new(Source::Flight(Listening { reader, before: 0, left: bytes, is_cut: false }))
    }

    /// These bytes of what a fetch brings, as they arrive.
    pub(crate) fn flight_range(reader: Reader, range: &Range<u64>) -> PageBody {
        let (before, left) = (range.start, Some(range.end - range.start));
        PageBody::new(Source::Flight(Listening { reader, before, left, is_cut: true }))
    }

    pub(crate) fn origin(body: OriginBody) -> PageBody {
        PageBody::new(Source::Origin(Box::new(body)))
    }

    /// As long as it is there, its client has an answer under way.
    pub(crate) fn of(mut self, answering: Answering) -> PageBody {
        self.answering = Some(answering);
        self
    }

    /// With a line of the access log that is written when the body is done with.
    pub(crate) fn logged(mut self, entry: Box<Entry>) -> PageBody {
        self.entry = Some(entry);
        self
    }
}

/// What one client is sent of a fetch.
struct Listening {
    reader: Reader,
    /// Bytes that come before the first one for it.
    before: u64,
    /// Bytes for it that are to come, if that is known.
    left: Option<u64>,
    /// It ends with the last of them, whatever comes behind.
    is_cut: bool,
}

impl Listening {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            let mut piece = match ready!(self.reader.poll_piece(cx)) {
                Some(Ok(piece)) => piece,
                end => return Poll::Ready(end),
            };
            let before = self.before.min(piece.len() as u64);
            self.before -= before;
            piece.advance(before as usize);
            if let Some(left) = &mut self.left {
                if self.is_cut {
                    piece.truncate((*left).min(piece.len() as u64) as usize);
                }
                *left = left.saturating_sub(piece.len() as u64);
            }
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(piece)));
            }
        }
    }

    fn is_over(&self) -> bool {
        self.is_cut && self.left == Some(0)
    }
}

/// Part of a stored value, which others may hold as well.
pub struct PagePiece<H = Arc<Held>> {
    held: H,
    at: usize,
    end: usize,
}

impl<H: Borrow<Held>> PagePiece<H> {
    /// `at..end` of it.
    pub(crate) fn new(held: H, at: usize, end: usize) -> PagePiece<H> {
        PagePiece { held, at, end }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// The bytes at `at` that lie in one piece.
    fn piece(&self, at: usize) -> &[u8] {
        let piece = self.held.borrow().piece(at);
        &piece[..piece.len().min(self.end - at)]
    }

    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut at = self.at;
        let mut filled = 0;
        while filled < slices.len() && at < self.end {
            let piece = self.piece(at);
            slices[filled] = IoSlice::new(piece);
            filled += 1;
            at += piece.len();
        }
        filled
    }

    pub(crate) fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.remaining(), "advanced past the end");
        self.at += bytes;
    }
}

/// What is sent at once.
pub enum PageData {
    /// Bytes of our own.
    Bytes(Bytes),
    /// The store's.
    Page(PagePiece),
}

impl Buf for PageData {
    fn remaining(&self) -> usize {
        match self {
            PageData::Bytes(bytes) => bytes.len(),
            PageData::Page(page) => page.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            PageData::Bytes(bytes) => bytes,
            PageData::Page(page) => page.piece(page.at),
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        match self {
            PageData::Bytes(bytes) => bytes.chunks_vectored(slices),
            PageData::Page(page) => page.slices(slices),
        }
    }

    fn advance(&mut self, bytes: usize) {
        match self {
            PageData::Bytes(own) => own.advance(bytes),
            PageData::Page(page) => page.advance(bytes),
        }
    }
}

/// A body broke off. What went wrong is in the log; the client sees its connection close before the end.
#[derive(Debug)]
pub struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the origin's answer broke off")
    }
}

impl std::error::Error for BrokenOff {}

impl Body for PageBody {
    type Data = PageData;
    type Error = BrokenOff;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<PageData>, BrokenOff>>> {
        let this = self.get_mut();
        let data = match &mut this.source {
            Source::Empty => return Poll::Ready(None),
            Source::Broken => {
                this.source = Source::Empty;
                return Poll::Ready(Some(Err(BrokenOff)));
            }
            Source::Bytes(_) | Source::Page(_) => match std::mem::replace(&mut this.source, Source::Empty) {
                Source::Bytes(bytes) => PageData::Bytes(bytes),
                Source::Page(page) => PageData::Page(page),
                _ => return Poll::Ready(None),
            },
            Source::Parts(parts, left) => match parts.next() {
                None => return Poll::Ready(None),
                Some(Part::Bytes(bytes)) => {
                    *left -= bytes.len() as u64;
                    PageData::Bytes(bytes)
                }
                Some(Part::Page(range, held)) => {
                    *left -= range.len() as u64;
                    PageData::Page(PagePiece::new(held, range.start, range.end))
                }
            },
            Source::Flight(listening) => match ready!(listening.poll_piece(cx)) {
                None => return Poll::Ready(None),
                Some(Err(Broken)) => return this.break_off(cx),
                Some(Ok(bytes)) => {
                    if listening.is_over() {
                        // The flight waits for nobody who wants no more of it.
                        this.source = Source::Empty;
                    }
                    PageData::Bytes(bytes)
                }
            },
            Source::Origin(body) => match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(error))) => {
                    if let Some(entry) = &mut this.entry {
                        entry.failed(&error);
                    }
                    return this.break_off(cx);
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(bytes) => PageData::Bytes(bytes),
                    Err(frame) => match frame.into_trailers() {
                        Ok(trailers) => return Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                        Err(_) => return Poll::Ready(None),
                    },
                },
            },
        };
        if let Some(entry) = &mut this.entry {
            entry.add_bytes(data.remaining() as u64);
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Bytes(_) | Source::Page(_) | Source::Flight(..) | Source::Broken => false,
            Source::Parts(parts, _) => parts.as_slice().is_empty(),
            Source::Origin(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            Source::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Page(page) => SizeHint::with_exact(page.remaining() as u64),
            Source::Parts(_, left) => SizeHint::with_exact(*left),
            Source::Flight(flight) => flight.left.map_or_else(SizeHint::default, SizeHint::with_exact),
            Source::Origin(body) => body.size_hint(),
            Source::Broken => SizeHint::default(),
        }
    }
}

impl PageBody {
    /// Nothing more comes. That is said at the next look only: with an error goes what is not sent yet, and then a client
    /// would be closed on without a head although the beginning of its answer was there.
    fn break_off<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        self.source = Source::Broken;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
