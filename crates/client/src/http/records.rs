//! Lists of records whose fields are text alone, as services write them, read without a tree.
//!
//! A receive of 32 messages has 700 tags, and most of a client's work for it was their tree. What is written in any
//! other way that XML allows is left to [`Element`](super::xml::Element), which also finds what is wrong.

use std::borrow::Cow;

use quick_xml::escape::unescape;
use smallvec::SmallVec;

/// A message of Queue Storage has seven.
const FIELDS: usize = 8;

/// The fields of a record, in their order.
#[derive(Debug, Default)]
pub(crate) struct Record<'a>(SmallVec<[(&'a str, Cow<'a, str>); FIELDS]>);

impl Record<'_> {
    /// The text of the first field of that name.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(it, _)| *it == name);
        found.map(|(_, text)| &**text)
    }
}

/// Reads `<list><record><Field>text</Field>…</record>…</list>`. `None` if the document has anything else.
pub(crate) fn records<'a>(document: &'a [u8], list: &str, record: &str) -> Option<Vec<Record<'a>>> {
    let mut rest = Rest(std::str::from_utf8(document).ok()?);
    rest.skip("\u{FEFF}");
    // Another processing instruction is left to a tree.
    if let Some(declaration) = rest.0.strip_prefix("<?xml ") {
        let (_, after) = declaration.split_once("?>")?;
        rest = Rest(after.trim_ascii_start());
    }
    rest.begin(list)?;
    let mut records = Vec::new();
    loop {
        if rest.end(list).is_some() {
            return rest.0.trim_ascii().is_empty().then_some(records);
        }
        rest.begin(record)?;
        let mut fields = Record::default();
        while rest.end(record).is_none() {
            fields.0.push(rest.field()?);
        }
        records.push(fields);
    }
}

/// What is not read yet.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    fn begin(&mut self, name: &str) -> Option<()> {
        let mut after = Rest(self.0);
        after.skip("<")?;
        after.skip(name)?;
        after.skip(">")?;
        self.0 = after.0;
        Some(())
    }

    fn end(&mut self, name: &str) -> Option<()> {
        let mut after = Rest(self.0);
        after.skip("</")?;
        after.skip(name)?;
        after.skip(">")?;
        self.0 = after.0;
        Some(())
    }

    fn field(&mut self) -> Option<(&'a str, Cow<'a, str>)> {
        self.skip("<")?;
        let (name, after) = self.0.split_once('>')?;
        if name.is_empty() || !name.bytes().all(|it| it.is_ascii_alphanumeric()) {
            return None;
        }
        let text = after.get(..after.find('<')?)?;
        self.0 = after.get(text.len()..)?;
        self.end(name)?;
        // Line ends would have to be changed.
        if text.contains('\r') {
            return None;
        }
        Some((name, unescape(text).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::xml::{Element, message_body};

    fn read(document: &str) -> Option<Vec<Vec<(String, String)>>> {
        let records = records(document.as_bytes(), "L", "R")?;
        let fields = |record: Record<'_>| {
            let fields = record.0.into_iter();
            fields
                .map(|(name, text)| (name.to_owned(), text.into_owned()))
                .collect()
        };
        Some(records.into_iter().map(fields).collect())
    }

    fn of_tree(document: &str) -> Vec<Vec<(String, String)>> {
        let root = Element::parse(document.as_bytes());
        let root = root.unwrap_or_else(|error| panic!("{document}: {error}"));
        assert_eq!(root.name, "L");
        let fields = |record: &Element<'_>| {
            let fields = record.children.iter();
            fields
                .map(|it| (it.name.to_owned(), it.text.to_string()))
                .collect()
        };
        root.children.iter().map(fields).collect()
    }

    #[test]
    fn plain_lists_are_read_as_a_tree_reads_them() {
        for document in [
            "<L></L>",
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><L></L>\n",
            "\u{FEFF}<?xml version=\"1.0\"?>\n <L><R></R></L>",
            "<L><R><A>1</A><B></B><A>2</A></R><R><C> é😀]]&gt; \n</C></R></L>",
            "<L><R><A>&lt;a&gt;&amp;&quot;&apos;&#x41;&#66;&amp;amp;</A></R></L>",
        ] {
            assert_eq!(read(document).unwrap(), of_tree(document), "{document}");
        }
        let text = "a<b>&\"c\"'😀]]>&amp; \t";
        let body = message_body(text);
        let list = format!("<L>{}</L>", body.replace("QueueMessage", "R"));
        let [record] = &records(list.as_bytes(), "L", "R").unwrap()[..] else {
            panic!("{list}");
        };
        assert_eq!(record.text("MessageText"), Some(text));
        assert_eq!(record.text("Other"), None);
    }

    /// A few bytes of a document are replaced by others that mean something in XML.
    #[test]
    fn what_is_read_of_changed_documents_is_what_a_tree_reads() {
        const BYTES: &[u8] = b"<>/?!&;#\"'= \n\rRLA1x:-[]\xc3";
        let whole = "<?xml version=\"1.0\"?><L><R><A>1&lt;</A><B>x y</B></R><R><A>2</A></R></L>";
        let mut number = 1_u64;
        let mut next = |below: usize| {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(number >> 33).unwrap() % below
        };
        let mut agreed = 0;
        for _ in 0..20_000 {
            let mut document = whole.as_bytes().to_vec();
            for _ in 0..=next(3) {
                let place = next(document.len());
                document[place] = BYTES[next(BYTES.len())];
            }
            let Ok(text) = std::str::from_utf8(&document) else {
                continue;
            };
            if let Some(records) = read(text) {
                assert_eq!(records, of_tree(text), "{text}");
                agreed += 1;
            }
        }
        assert!(agreed > 1_000, "{agreed}");
    }

    #[test]
    fn everything_else_is_left_to_a_tree() {
        for document in [
            "",
            "<L/>",
            "<M></M>",
            "<L></L><L></L>",
            "<L></L>text",
            "<L>text<R></R></L>",
            "<L> <R></R></L>",
            "<L><R/></L>",
            "<L><S></S></L>",
            "<L a=\"1\"></L>",
            "<L><R><A/></R></L>",
            "<L><R><A b=\"1\">x</A></R></L>",
            "<L><R><p:A>x</p:A></R></L>",
            "<L><R><A>x</B></R></L>",
            "<L><R><A><B>x</B></A></R></L>",
            "<L><R><A><![CDATA[x]]></A></R></L>",
            "<L><R><A>x<!-- y --></A></R></L>",
            "<L><R><A>line\r\nend</A></R></L>",
            "<L><R><A>&b;</A></R></L>",
            "<L><R><A>&#xD800;</A></R></L>",
            "<L><R><A>x</A></R>",
            "<L><R><A>x</A>",
            "<L><R><A>x",
            "<!DOCTYPE a [<!ENTITY b 'c'>]><L></L>",
            "<?xml version=\"1.0\"",
            "<?><L></L>",
        ] {
            assert_eq!(read(document), None, "{document}");
        }
        assert!(records(b"<L><R><A>\xff</A></R></L>", "L", "R").is_none());
    }
}
