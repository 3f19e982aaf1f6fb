pub fn doctor(_: bool) -> Result<crate::exit::Exit, crate::exit::Failure> {
    Ok(crate::exit::Exit::Done)
}
