//! The services that a command speaks to.

use kew_client::ConnectionString;

use crate::operate::Namespace;
use crate::operate_args::Common;
use crate::queue_args::{CommonArgs, When};
use crate::queue_command::{Account, Failure};
use crate::transfer_args::ServicesArgs;

/// The account and the namespace that connection strings name, or both of this machine.
pub(super) struct Services {
    pub(super) account: Option<Account>,
    pub(super) namespace: Option<Namespace>,
}

impl Services {
    pub(super) fn open(args: &ServicesArgs) -> Result<Self, Failure> {
        let (mut account, mut namespace) = (None, None);
        for text in &args.connection_string {
            let is_second = match ConnectionString::parse(text)? {
                ConnectionString::Queue(_) => account.replace(Some(text.clone())).is_some(),
                ConnectionString::Bus(_) => namespace.replace(Some(text.clone())).is_some(),
            };
            if is_second {
                let message = "two connection strings name the same service: pass one of each";
                return Err(Failure::Usage(message.into()));
            }
        }
        if args.connection_string.is_empty() {
            (account, namespace) = (Some(None), Some(None));
        }
        let account = account.map(|text| Account::open(&of_storage(args, text)));
        let namespace = namespace.map(|text| Namespace::open(&of_bus(args, text)));
        Ok(Self {
            account: account.transpose()?,
            namespace: namespace.transpose()?,
        })
    }
}

fn of_storage(args: &ServicesArgs, connection_string: Option<String>) -> CommonArgs {
    CommonArgs {
        connection_string,
        ca_cert: args.ca_cert.clone(),
        json: args.json,
        timeout: args.timeout,
        retries: args.retries,
        progress: When::Never,
    }
}

fn of_bus(args: &ServicesArgs, connection_string: Option<String>) -> Common {
    Common {
        connection_string,
        ca_cert: args.ca_cert.clone(),
        json: args.json,
        timeout: args.timeout,
        retries: args.retries,
    }
}
