//! Descriptions in requests.

use super::description::UnknownElements;
use super::elements::{Elements, Part, Settings};
use super::{NAMESPACE, forward};
use crate::error::Error;
use crate::http::xml::{are_allowed, put_element};

/// Writes elements one after another.
struct Writing<'a> {
    out: String,
    host: &'a str,
    unknown: UnknownElements,
    names: Vec<&'static str>,
}

impl Elements for Writing<'_> {
    fn value<T: Part>(&mut self, name: &'static str, value: &mut Option<T>) {
        self.names.push(name);
        match (value, self.unknown.named(name)) {
            (Some(value), _) => value.write(name, &mut self.out),
            // Of a kind that is not known here.
            (None, Some(element)) => self.out.push_str(element),
            (None, None) => {}
        }
    }

    fn required<T: Part>(&mut self, name: &'static str, value: &mut T) {
        self.names.push(name);
        value.write(name, &mut self.out);
    }

    fn target(&mut self, name: &'static str, target: &mut Option<String>) {
        self.names.push(name);
        let address = |target: &String| match target.is_empty() {
            true => String::new(),
            false => forward::address(target, self.host),
        };
        if let Some(address) = target.as_ref().map(address) {
            put_element(&mut self.out, name, &address);
        }
    }
}

/// The body of a request. Fails if there is a text that XML cannot carry.
pub(super) fn entry<S: Settings>(settings: &S, host: &str) -> Result<Vec<u8>, Error> {
    let mut settings = settings.clone();
    let mut out = "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">\
         "
    .to_owned();
    let namespace = format!(" xmlns=\"{NAMESPACE}\"");
    put_description(&mut out, S::ELEMENT, &namespace, &mut settings, host);
    out.push_str("</content></entry>");
    match are_allowed(&out) {
        true => Ok(out.into_bytes()),
        false => Err(Error::refused(format!(
            "the settings of the {} have characters that XML cannot carry",
            S::WHAT
        ))),
    }
}

/// Writes the elements of a description, in an element of that name.
pub(super) fn put_description<S: Settings>(
    out: &mut String,
    name: &str,
    attributes: &str,
    settings: &mut S,
    host: &str,
) {
    out.extend(["<", name, attributes]);
    let unknown = settings.unknown().clone();
    unknown.put_prefixes(out, &[]);
    out.push('>');
    let mut writing = Writing {
        out: std::mem::take(out),
        host,
        unknown,
        names: Vec::new(),
    };
    settings.each(&mut writing);
    let Writing {
        out: written,
        unknown,
        names,
        ..
    } = writing;
    *out = written;
    unknown.put_all_but(out, &names);
    out.extend(["</", name, ">"]);
}
