//! Things that recipes write as one word: found by their name, serialised by it, and open to newcomers.

use crate::NnError;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};

/// Implements serde for a type by its `Display` and `FromStr`.
macro_rules! serde_by_name {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Implements what a choice by name has besides: equality, text, parsing and serde, for a type around a [`Named`] whose
/// registry is given.
macro_rules! chosen_by_name {
    ($type:ident, $registry:ident) => {
        impl $type {
            /// The name that a recipe gives it, with its number where it has one.
            pub fn name(self) -> &'static str {
                self.0.name()
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.name() == other.name()
            }
        }

        impl Eq for $type {}

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $type {
            type Err = NnError;
            fn from_str(text: &str) -> Result<Self, NnError> {
                $registry.find(text).map($type)
            }
        }

        $crate::names::serde_by_name!($type);
    };
}

pub(crate) use {chosen_by_name, serde_by_name};

/// A thing with its name, which lives as long as the program: cheap to copy.
pub(crate) struct Named<T: ?Sized + 'static>(&'static Entry<T>);

struct Entry<T: ?Sized> {
    name: String,
    thing: Box<T>,
}

impl<T: ?Sized> Clone for Named<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Named<T> {}

impl<T: ?Sized> Named<T> {
    pub(crate) fn name(self) -> &'static str {
        &self.0.name
    }
}

impl<T: ?Sized> Deref for Named<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.thing
    }
}

/// One name, or one name with a number: `hinge`, `sigmoid:a`.
pub(crate) struct Family<T: ?Sized> {
    name: &'static str,
    member: Member<T>,
}

enum Member<T: ?Sized> {
    Plain(fn() -> Box<T>),
    Numbered { letter: &'static str, range: Numbers, usual: Usual, make: fn(f32) -> Box<T> },
}

/// What a family's number is where none is given.
#[derive(Clone, Copy)]
enum Usual {
    /// The name alone means this one.
    Alone(f32),
    /// A number must be given; this one stands for the family where one of each is wanted.
    Given(f32),
}

/// Which numbers a family takes after its name and a colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// Above 0.
    Positive,
    /// Below 1.
    BelowOne,
    /// Above 0, at most 1.
    Share,
}

impl Numbers {
    fn has(self, value: f32) -> bool {
        match self {
            Numbers::Positive => value.is_finite() && value > 0.0,
            Numbers::BelowOne => value.is_finite() && value < 1.0,
            Numbers::Share => value > 0.0 && value <= 1.0,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Numbers::Positive => "a positive number",
            Numbers::BelowOne => "a number below 1",
            Numbers::Share => "a number above 0, at most 1,",
        }
    }
}

impl<T: ?Sized> Family<T> {
    pub(crate) const fn plain(name: &'static str, make: fn() -> Box<T>) -> Self {
        Family { name, member: Member::Plain(make) }
    }

    /// With a number above zero after a colon.
    pub(crate) const fn positive(
        name: &'static str,
        letter: &'static str,
        usual: f32,
        make: fn(f32) -> Box<T>,
    ) -> Self {
        Family { name, member: Member::Numbered { letter, range: Numbers::Positive, usual: Usual::Given(usual), make } }
    }

    /// With a number above zero after a colon, or the name alone for a usual one.
    pub(crate) const fn scaled(name: &'static str, letter: &'static str, usual: f32, make: fn(f32) -> Box<T>) -> Self {
        Family { name, member: Member::Numbered { letter, range: Numbers::Positive, usual: Usual::Alone(usual), make } }
    }

    /// With a number below 1 after a colon, or the name alone for a usual one.
    pub(crate) const fn below_one(
        name: &'static str,
        letter: &'static str,
        usual: f32,
        make: fn(f32) -> Box<T>,
    ) -> Self {
        Family { name, member: Member::Numbered { letter, range: Numbers::BelowOne, usual: Usual::Alone(usual), make } }
    }

    /// With a number above zero and at most 1 after a colon.
    pub(crate) const fn share(name: &'static str, letter: &'static str, usual: f32, make: fn(f32) -> Box<T>) -> Self {
        Family { name, member: Member::Numbered { letter, range: Numbers::Share, usual: Usual::Given(usual), make } }
    }

    /// Of a program: with such a number after a colon, or the name alone for a usual one where there is one.
    pub(crate) fn added(
        name: &'static str,
        letter: &'static str,
        (range, usual): (Numbers, Option<f32>),
        make: fn(f32) -> Box<T>,
    ) -> Self {
        // One of each is wanted of the crate's own only.
        let usual = usual.map_or(Usual::Given(0.5), Usual::Alone);
        Family { name, member: Member::Numbered { letter, range, usual, make } }
    }

    /// How a list of names shows it.
    fn listed(&self) -> String {
        match self.member {
            Member::Plain(_) => self.name.into(),
            Member::Numbered { letter, usual: Usual::Given(_), .. } => format!("{}:{letter}", self.name),
            Member::Numbered { letter, usual: Usual::Alone(_), .. } => format!("{0} or {0}:{letter}", self.name),
        }
    }

    /// The member's name and itself; none where the text is of another family, an error where its number is wrong.
    fn member(&self, text: &str) -> Option<Result<(String, Box<T>), String>> {
        match &self.member {
            Member::Plain(make) => (text == self.name).then(|| Ok((text.into(), make()))),
            Member::Numbered { letter, range, usual, make } => {
                let rest = text.strip_prefix(self.name)?;
                if let (Usual::Alone(usual), "") = (usual, rest) {
                    return Some(Ok((text.into(), make(*usual))));
                }
                let number = rest.strip_prefix(':')?;
                Some(match number.parse::<f32>() {
                    // One name for one thing.
                    Ok(value) if matches!(usual, Usual::Alone(usual) if *usual == value) => {
                        Ok((self.name.into(), make(value)))
                    }
                    Ok(value) if range.has(value) => Ok((format!("{}:{value}", self.name), make(value))),
                    _ => Err(format!("{}:{letter} takes {} {letter}", self.name, range.words())),
                })
            }
        }
    }

    fn usual(&self) -> String {
        match self.member {
            Member::Plain(_) => self.name.into(),
            Member::Numbered { usual: Usual::Alone(_), .. } => self.name.into(),
            Member::Numbered { usual: Usual::Given(usual), .. } => format!("{}:{usual}", self.name),
        }
    }
}

/// Whether a name can be written wherever names are.
pub(crate) fn is_sound(name: &str) -> bool {
    let sound = |c: char| c.is_ascii_alphanumeric() || "_.:-+".contains(c);
    !name.is_empty() && name.chars().all(sound)
}

/// Whether a name can be one part of a longer one.
pub(crate) fn is_word(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What one that is not should have been.
pub(crate) const SOUND: &str = "a name has letters, digits and _ . : - + only";

/// Everything of one kind that has a name: what comes with the crate, and what a program adds.
pub(crate) struct Registry<T: ?Sized + 'static> {
    what: &'static str,
    families: &'static [Family<T>],
    added: Mutex<Vec<Family<T>>>,
    known: Mutex<Vec<Named<T>>>,
}

impl<T: ?Sized> Registry<T> {
    pub(crate) const fn new(what: &'static str, families: &'static [Family<T>]) -> Self {
        Registry { what, families, added: Mutex::new(Vec::new()), known: Mutex::new(Vec::new()) }
    }

    pub(crate) fn find(&self, text: &str) -> Result<Named<T>, NnError> {
        let unknown = |known: String| NnError::Name { what: self.what, name: text.into(), known };
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(named) = all.iter().find(|n| n.name() == text) {
            return Ok(*named);
        }
        let added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        match self.families.iter().chain(added.iter()).find_map(|family| family.member(text)) {
            Some(Ok((name, thing))) => match all.iter().find(|n| n.name() == name) {
                Some(named) => Ok(*named),
                None => Ok(keep(&mut all, name, thing)),
            },
            Some(Err(range)) => Err(unknown(range)),
            None => {
                // What a program added is worth naming too; members of families are there already.
                let families = || self.families.iter().chain(added.iter());
                let mut names: Vec<String> = families().map(Family::listed).collect();
                let of_family = |name: &str| families().any(|family| family.member(name).is_some());
                names.extend(all.iter().map(|n| n.name().to_string()).filter(|name| !of_family(name)));
                let verb = if names.len() == 1 { "known is" } else { "known are" };
                Err(unknown(format!("{verb} {}", names.join(", "))))
            }
        }
    }

    fn is_member(&self, name: &str) -> bool {
        let added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        self.families.iter().chain(added.iter()).any(|family| family.member(name).is_some())
    }

    /// Adds one under a name that nobody has.
    pub(crate) fn add(&self, name: &str, thing: Box<T>) -> Result<Named<T>, NnError> {
        let refused = |why| NnError::Register { what: self.what, name: name.into(), why };
        if !is_sound(name) {
            return Err(refused(SOUND));
        }
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_member(name) || all.iter().any(|n| n.name() == name) {
            return Err(refused("the name is taken"));
        }
        Ok(keep(&mut all, name.into(), thing))
    }

    /// Adds a family under a name that nobody has.
    pub(crate) fn add_family(&self, family: Family<T>) -> Result<(), NnError> {
        let refused = |why| NnError::Register { what: self.what, name: family.name.into(), why };
        if !is_word(family.name) {
            return Err(refused("the name of a family has letters, digits and _ only"));
        }
        let begins = format!("{}:", family.name);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut added = self.added.lock().unwrap_or_else(PoisonError::into_inner);
        let is_taken = known.iter().any(|n| n.name() == family.name || n.name().starts_with(&begins))
            || self.families.iter().chain(added.iter()).any(|other| other.name == family.name);
        if is_taken {
            return Err(refused("the name is taken"));
        }
        if matches!(family.member, Member::Numbered { range, usual: Usual::Alone(usual), .. } if !range.has(usual)) {
            return Err(refused("its usual number is none that it takes"));
        }
        added.push(family);
        Ok(())
    }

    /// Every family's usual member.
    pub(crate) fn usual(&self) -> Vec<Named<T>> {
        self.families.iter().map(|f| self.find(&f.usual()).expect("a family has its usual member")).collect()
    }
}

/// Names are few, so what has one is never given back.
fn keep<T: ?Sized>(all: &mut Vec<Named<T>>, name: String, thing: Box<T>) -> Named<T> {
    let named = Named(Box::leak(Box::new(Entry { name, thing })));
    all.push(named);
    named
}
