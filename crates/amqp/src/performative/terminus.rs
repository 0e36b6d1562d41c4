//! Where messages come from and go to (AMQP 1.0, 3.5 and 4.5.1).

use bytes::BytesMut;

use crate::codec::{
    Composite, Decode, DecodeError, Encode, Map, Raw, Reader, Symbol, Symbols, Text, composite,
    descriptor_code,
};

composite! {
    /// Where messages come from.
    pub struct Source = 0x28 "amqp:source:list" {
        /// The node's address.
        address: Option<Text>,
        /// Which part of the terminus survives a crash.
        durable: u32 = 0,
        /// When the expiry timer of the terminus starts. Null: when the session ends.
        expiry_policy: Option<Symbol>,
        /// How long that timer runs, in seconds.
        timeout: u32 = 0,
        /// Whether to create the node.
        dynamic: bool = false,
        /// The properties of the new node.
        dynamic_node_properties: Option<Map>,
        /// `move` or `copy`.
        distribution_mode: Option<Symbol>,
        /// Filters for messages, by name. A value may be described or not, as the peer prefers. An
        /// answer keeps the form.
        filter: Option<Map>,
        /// The outcome of deliveries without one.
        default_outcome: Option<Raw>,
        /// The supported outcomes.
        outcomes: Symbols = Symbols::default(),
        /// Extensions that it supports or would use.
        capabilities: Symbols = Symbols::default(),
    }
}

composite! {
    /// A node to which messages go.
    pub struct TargetNode = 0x29 "amqp:target:list" {
        /// The node's address.
        address: Option<Text>,
        /// Which part of the terminus survives a crash.
        durable: u32 = 0,
        /// When the expiry timer of the terminus starts. Null: when the session ends.
        expiry_policy: Option<Symbol>,
        /// How long that timer runs, in seconds.
        timeout: u32 = 0,
        /// Whether to create the node.
        dynamic: bool = false,
        /// The properties of the new node.
        dynamic_node_properties: Option<Map>,
        /// Extensions that it supports or would use.
        capabilities: Symbols = Symbols::default(),
    }
}

composite! {
    /// The coordinator of transactions, as a target.
    pub struct Coordinator = 0x30 "amqp:coordinator:list" {
        /// Kinds of transactions.
        capabilities: Symbols = Symbols::default(),
    }
}

impl Source {
    /// A node, and no other fields.
    pub fn new(address: Text) -> Self {
        Self {
            address: Some(address),
            durable: 0,
            expiry_policy: None,
            timeout: 0,
            dynamic: false,
            dynamic_node_properties: None,
            distribution_mode: None,
            filter: None,
            default_outcome: None,
            outcomes: Symbols::default(),
            capabilities: Symbols::default(),
        }
    }
}

/// Where messages go to.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A node.
    Node(TargetNode),
    /// The coordinator of transactions.
    Coordinator(Coordinator),
}

impl Target {
    /// A node, and no other fields.
    pub fn new(address: Text) -> Self {
        Self::Node(TargetNode {
            address: Some(address),
            durable: 0,
            expiry_policy: None,
            timeout: 0,
            dynamic: false,
            dynamic_node_properties: None,
            capabilities: Symbols::default(),
        })
    }

    /// The node's address.
    pub fn address(&self) -> Option<&Text> {
        match self {
            Self::Node(node) => node.address.as_ref(),
            Self::Coordinator(_) => None,
        }
    }
}

impl Decode for Target {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let names = [
            (TargetNode::CODE, TargetNode::NAME),
            (Coordinator::CODE, Coordinator::NAME),
        ];
        match descriptor_code(&reader.descriptor()?, &names)? {
            Coordinator::CODE => Coordinator::read_list(reader).map(Self::Coordinator),
            _ => TargetNode::read_list(reader).map(Self::Node),
        }
    }
}

impl Encode for Target {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Node(node) => node.encode(out),
            Self::Coordinator(coordinator) => coordinator.encode(out),
        }
    }
}
