//! Writing a backup part by part, in bounded memory for a store of any size.

use std::io::{self, Write};

use super::part::{self, Head, Totals};
use super::{Chain, FORMAT, Kind, MAGIC};
use crate::base::secret::MasterKey;
use crate::base::time::Timestamp;
use crate::store::content::compression;

/// Size of the rows that fill a part.
const ROWS_BYTES: usize = 256 * 1024;

/// A backup that is being written.
pub(in crate::store) struct Writer<W: Write> {
    out: W,
    chain: Chain,
    totals: Totals,
    table: Option<String>,
    rows: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a backup that `head` describes.
    pub(in crate::store) fn begin(mut out: W, head: &Head) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(format!("{FORMAT}\n").as_bytes())?;
        let mut writer = Self { out, chain: Chain::begin(), totals: Totals::default(), table: None, rows: Vec::new() };
        writer.part(Kind::Head, &written(head))?;
        Ok(writer)
    }

    /// Adds the master key.
    pub(in crate::store) fn master_key(&mut self, key: &[u8; MasterKey::LENGTH]) -> io::Result<()> {
        self.part(Kind::MasterKey, key)
    }

    /// Adds a row. The rows of one table must follow one another.
    pub(in crate::store) fn row(&mut self, table: &str, key: &[u8], value: &[u8]) -> io::Result<()> {
        if self.table.as_deref() != Some(table) || self.rows.len() >= ROWS_BYTES {
            self.flush_rows()?;
            self.table = Some(table.to_owned());
            self.rows = part::begin_rows(table);
        }
        part::put_bytes(&mut self.rows, key);
        part::put_bytes(&mut self.rows, value);
        self.totals.rows += 1;
        Ok(())
    }

    fn flush_rows(&mut self) -> io::Result<()> {
        if self.table.take().is_some() {
            let compressed = compression::compress(&std::mem::take(&mut self.rows));
            self.part(Kind::Rows, &compressed)?;
        }
        Ok(())
    }

    /// Announces the size of the content, after all rows.
    pub(in crate::store) fn content_ahead(&mut self, byte_count: u64) -> io::Result<()> {
        self.flush_rows()?;
        self.part(Kind::ContentAhead, &byte_count.to_be_bytes())
    }

    /// Adds a piece of a segment.
    pub(in crate::store) fn segment(
        &mut self,
        bucket: Timestamp,
        number: u32,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.totals.segments += u64::from(offset == 0);
        self.totals.content_bytes += bytes.len() as u64;
        self.part(Kind::Segment, &part::segment(bucket, number, offset, bytes))
    }

    /// Adds the keys of the segments.
    pub(in crate::store) fn keys(&mut self, slots: &[u8]) -> io::Result<()> {
        self.part(Kind::Keys, slots)
    }

    /// Adds a file that belongs to the store.
    pub(in crate::store) fn file(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.part(Kind::File, &part::file(name, bytes))
    }

    /// Ends the backup, which is then complete.
    pub(in crate::store) fn end(mut self) -> io::Result<Totals> {
        self.flush_rows()?;
        let totals = self.totals;
        self.part(Kind::End, &written(&totals))?;
        self.out.flush()?;
        Ok(totals)
    }

    fn part(&mut self, kind: Kind, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(|_| io::Error::other("a part of 4 GiB or more"))?;
        self.out.write_all(&[kind as u8])?;
        self.out.write_all(&length.to_be_bytes())?;
        self.out.write_all(payload)?;
        self.out.write_all(&self.chain.next(kind as u8, payload))
    }
}

fn written(value: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).unwrap_or_else(|_| unreachable!("postcard can encode every part"))
}
